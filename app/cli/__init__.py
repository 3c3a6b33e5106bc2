"""The commands: `dra-extender`, also installed as `kubectl-dra`."""
