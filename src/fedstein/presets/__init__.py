"""Settings that come with fedstein: `fedstein train --preset NAME`."""
