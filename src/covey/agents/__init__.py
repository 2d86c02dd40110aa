"""Multi-agent reinforcement learning of the association: one learner, three mixers, trained policies."""
