"""The application layer: the verbs over run folders, without a terminal. `fedstein.api` puts a `Run` around them."""
