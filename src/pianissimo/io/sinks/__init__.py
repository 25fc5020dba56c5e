"""Where releases go: folders, Kafka topics, webhooks."""
