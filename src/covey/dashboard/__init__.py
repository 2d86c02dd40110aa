"""The dashboard: a local web server for a folder of runs and trainings. Import `covey.dashboard.app` to build it."""
