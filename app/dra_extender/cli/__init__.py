"""The commands: `dra-extender`, also installed as `kubectl-dra`. A module for each, and a module for its answer."""
