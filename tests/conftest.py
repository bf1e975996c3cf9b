"""Load the plugin with the fixtures that several test folders share."""

pytest_plugins = ["tests.testbed.plugin"]
