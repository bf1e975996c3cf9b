"""All fixtures that several folders share are in the plugin."""

pytest_plugins = ["tests.testbed.plugin"]
