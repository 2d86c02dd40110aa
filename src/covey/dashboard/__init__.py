"""The dashboard: a local web server for a folder of runs and trainings; `covey.dashboard.app` builds it."""
