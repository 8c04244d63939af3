"""The progressive-validation loop: a partition, all partitions of a process, and how they change hands."""
