"""Load the plugin, which has the fixtures that several test folders share."""

pytest_plugins = ["tests.testbed.plugin"]
