"""Training runs over all hosts of an inventory: asked of each host's launcher, shown as one."""
