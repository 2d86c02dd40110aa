"""File names in the folders of runs and trainings, in a module without dependencies."""

#: Checkpoints from which a run and a training are resumed.
RUN_CHECKPOINT = "checkpoint.safetensors"
TRAINING_CHECKPOINT = "training.safetensors"
#: Outputs of a training: the policy, and one row of metrics per epoch.
POLICY = "policy.safetensors"
METRICS = "metrics.csv"
#: Progress of a running job.
PROGRESS = "progress.jsonl"
#: Settings of a run on real devices; simulated runs have no such file.
DEPLOYMENT = "deploy.json"
