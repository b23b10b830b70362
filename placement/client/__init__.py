"""The command line and the plugin of the openstack client; they speak REST."""
