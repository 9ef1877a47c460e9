"""What TensorRT knows our plugins by: a plugin's name is that of its op."""

PLUGIN_NAMESPACE = "dsv4"
PLUGIN_VERSION = "1"
# the type of a field by that of its attribute
ATTR_FIELD_TYPES = {int: "INT32", bool: "INT32", float: "FLOAT32", str: "CHAR"}
