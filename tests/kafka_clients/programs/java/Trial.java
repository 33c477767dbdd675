// Program of Kafka's own Java client; ../python/serve.py states the form of requests and answers.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Trial {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long TIMEOUT_S = 30;
    static final Map<String, Producer<byte[], byte[]>> producers = new HashMap<>();
    static Map<String, Object> servers;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        servers = Map.of("bootstrap.servers", arguments[0]);
        admin = Admin.create(servers);
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", perform(JSON.readTree(line)));
            } catch (KafkaException | ExecutionException | TimeoutException error) {
                answer.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        producers.values().forEach(Producer::close);
        admin.close();
    }

    static JsonNode perform(JsonNode asked) throws Exception {
        String topic = asked.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition part = new TopicPartition(topic, asked.path("partition").asInt());
        String name = asked.path("name").asText();
        switch (asked.get("do").asText()) {
            case "produce": return produce(asked, part);
            case "fetch": return fetch(asked, part);
            case "offsets": return JSON.valueToTree(offset(part, asked.get("at")));
            case "metadata": return metadata(topic);
            case "create":
                NewTopic wanted = new NewTopic(topic, asked.get("partitions").asInt(),
                                               (short) asked.get("replication").asInt());
                return done(admin.createTopics(List.of(wanted)).all());
            case "describe":
                Config found = waited(admin.describeConfigs(List.of(resource)).all()).get(resource);
                return JSON.valueToTree(found.get(name).value());
            case "alter":
                ConfigEntry entry = new ConfigEntry(name, asked.get("value").asText());
                return done(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                    new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all());
            case "delete_records":
                return done(admin.deleteRecords(Map.of(part, RecordsToDelete.beforeOffset(
                    asked.get("before").asLong()))).all());
            case "delete": return done(admin.deleteTopics(List.of(topic)).all());
            default: throw new KafkaException("unknown verb " + asked);
        }
    }

    static <T> T waited(Future<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    static JsonNode done(Future<?> future) throws Exception {
        waited(future);
        return JSON.nullNode();
    }

    static byte[] decoded(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String encoded(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }

    static JsonNode produce(JsonNode asked, TopicPartition part) throws Exception {
        String acks = asked.get("acks").asText();
        String compression = asked.get("compression").asText();
        boolean idempotent = asked.get("idempotent").asBoolean();
        int timeoutMs = asked.get("timeout_s").asInt() * 1000;
        Producer<byte[], byte[]> producer = producers.computeIfAbsent(
            acks + compression + idempotent, key -> {
                Map<String, Object> settings = new HashMap<>(servers);
                settings.putAll(Map.of("acks", acks, "compression.type", compression,
                    "enable.idempotence", idempotent, "linger.ms", 5,
                    "delivery.timeout.ms", timeoutMs, "request.timeout.ms", timeoutMs / 2));
                return new KafkaProducer<>(settings, new ByteArraySerializer(),
                                           new ByteArraySerializer());
            });
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode record : asked.get("records")) {
            ProducerRecord<byte[], byte[]> sent = new ProducerRecord<>(
                part.topic(), part.partition(), decoded(record.get(0)), decoded(record.get(1)));
            sent.headers().add("from", decoded(asked.get("header")));
            futures.add(producer.send(sent));
        }
        producer.flush();
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> future : futures) {
            try {
                offsets.add(future.get().offset());
            } catch (ExecutionException error) {
                System.err.println(error);
                offsets.addNull();
            }
        }
        return offsets;
    }

    static Consumer<byte[], byte[]> consumer() {
        return new KafkaConsumer<>(servers, new ByteArrayDeserializer(),
                                   new ByteArrayDeserializer());
    }

    static JsonNode fetch(JsonNode asked, TopicPartition part) {
        ArrayNode rows = JSON.createArrayNode();
        int count = asked.get("count").asInt();
        long giveUp = System.nanoTime() + asked.get("timeout_s").asLong() * 1_000_000_000L;
        try (Consumer<byte[], byte[]> reader = consumer()) {
            reader.assign(List.of(part));
            JsonNode start = asked.get("start");
            if (start.isTextual()) {
                reader.seekToBeginning(List.of(part));
            } else {
                reader.seek(part, start.isObject() ? offset(part, start) : start.asLong());
            }
            while (rows.size() < count && System.nanoTime() < giveUp) {
                for (ConsumerRecord<byte[], byte[]> row : reader.poll(Duration.ofMillis(200))) {
                    if (rows.size() < count) {
                        rows.addArray().add(row.offset()).add(row.timestamp())
                            .add(encoded(row.key())).add(encoded(row.value()))
                            .add(encoded(row.headers().lastHeader("from").value()));
                    }
                }
            }
        }
        return rows;
    }

    static long offset(TopicPartition part, JsonNode at) {
        try (Consumer<byte[], byte[]> reader = consumer()) {
            if (at.isObject()) {
                OffsetAndTimestamp found = reader.offsetsForTimes(
                    Map.of(part, at.get("time").asLong())).get(part);
                return found == null ? -1 : found.offset();
            }
            return (at.asText().equals("earliest") ? reader.beginningOffsets(List.of(part))
                                                   : reader.endOffsets(List.of(part))).get(part);
        }
    }

    static JsonNode metadata(String topic) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        ArrayNode brokers = found.putArray("brokers");
        waited(admin.describeCluster().nodes()).stream().map(node -> node.id()).sorted()
            .forEach(brokers::add);
        return found.put("partitions", waited(admin.describeTopics(List.of(topic))
            .allTopicNames()).get(topic).partitions().size());
    }
}
