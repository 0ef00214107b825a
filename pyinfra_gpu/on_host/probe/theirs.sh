# What is looked at as the owner, each concern in a process of its own. PG_LEFT: the paths, one a line,
# of which only the owner may say what stands there.
theirs() {
	below owned entries owned "$PG_LEFT"
	told "owned${PG_NVIDIA:+ cuda}" needs
	below torch torch
	below environment text environment.text "$PG_ENV_FILE"
	below training training
	below smoke text smoke.verdict "$PG_VERDICT"
}
