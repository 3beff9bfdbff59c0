"""The sections: each module has `run(setting)`, which gives what was found, raises `NotRun` with a reason, or fails."""
