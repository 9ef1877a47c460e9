"""What TensorRT knows our plugins by: a plugin's name is that of its op."""

PLUGIN_NAMESPACE = "dsv4"
PLUGIN_VERSION = "1"
