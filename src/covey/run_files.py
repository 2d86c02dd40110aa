"""Names of the files in the folders of runs and trainings, for whoever looks for them without opening them."""

#: Where an interrupted run, and an interrupted training, goes on.
RUN_CHECKPOINT = "checkpoint.safetensors"
TRAINING_CHECKPOINT = "training.safetensors"
#: What a training gives: the policy, and a row per epoch.
POLICY = "policy.safetensors"
METRICS = "metrics.csv"
#: What others may watch of work that goes on.
PROGRESS = "progress.jsonl"
#: How a run with real devices is played; a run without it was simulated.
DEPLOYMENT = "deploy.json"
