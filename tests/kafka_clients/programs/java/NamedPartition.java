// Partitioner for the console producer, which has no option for a partition.

import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;

public class NamedPartition implements Partitioner {
    private int partition;

    @Override
    public void configure(Map<String, ?> settings) {
        partition = Integer.parseInt(settings.get("named.partition").toString());
    }

    @Override
    public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes,
                         Cluster cluster) {
        return partition;
    }

    @Override
    public void close() {
    }
}
