"""The parts of the bundled incident, made by make_train_run_7.py."""
