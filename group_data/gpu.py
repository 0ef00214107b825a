"""Hosts with NVIDIA GPUs. What is common to all of them; a host's own data comes first."""

# Compute-only packages; "full" adds what a desktop on the GPU needs.
driver_packages = "compute"

# When only a reboot helps: "if-idle" waits for a run that finds no GPU process, nobody logged in
# and no inhibitor lock; "never" stops the host and says so; "always" reboots.
driver_reboot = "if-idle"
