"""Learning who serves whom: one learner, three mixers, and the policies it makes."""
