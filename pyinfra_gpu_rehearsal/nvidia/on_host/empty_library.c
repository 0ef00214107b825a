/* A library of the simulated driver that is there to be found; nothing calls it. */
const char *rehearsal_version(void) { return VERSION; }
