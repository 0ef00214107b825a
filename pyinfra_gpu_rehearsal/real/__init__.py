"""Real packages of a driver and of a kernel on throwaway hosts, from the distribution's archive."""
