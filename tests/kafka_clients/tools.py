"""Driver of Kafka's own command line tools, a JVM for each verb."""
class ToolsDriver: pass
