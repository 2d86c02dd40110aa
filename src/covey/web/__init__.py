"""The dashboard: a local web server for a folder of runs and trainings. Import `covey.web.app` to build it."""
