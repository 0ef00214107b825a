# What is looked at as the owner, each concern in a process of its own. PG_LEFT: the paths, one a line,
# of which only the owner may say what stands there.
theirs() {
	(entries owned "$PG_LEFT")
	(torch)
	(text environment.text "$PG_ENV_FILE")
	(training)
	(text smoke.verdict "$PG_VERDICT")
	if [ "$PG_NVIDIA" ]; then (compilers); fi
}
