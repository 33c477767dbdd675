// Program of kafkajs; ../python/serve.py states the form of requests and answers.  It cannot fetch:
// consumers of kafkajs are members of groups.

const readline = require("node:readline");
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, KafkaJSError, logLevel } =
  require("kafkajs");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const kafka = new Kafka({
  brokers: process.argv[2].split(","),
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => console.error(log.message, log.error ?? ""),
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 60 },
});
const admin = kafka.admin();
const producers = new Map();
const compressions = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP,
                       snappy: CompressionTypes.Snappy };
const decoded = (text) => (text === null ? null : Buffer.from(text, "base64"));
const resource = (topic) => ({ type: ConfigResourceTypes.TOPIC, name: topic });
const BATCH = 25;

const verbs = {
  async produce({ topic, partition, acks, compression, idempotent, header, records }) {
    if (!producers.has(idempotent)) {
      const made = kafka.producer({ idempotent, allowAutoTopicCreation: false,
                                    maxInFlightRequests: idempotent ? 1 : 5 });
      await made.connect();
      producers.set(idempotent, made);
    }
    const sent = [];
    for (let first = 0; first < records.length; first += BATCH) {
      const messages = records.slice(first, first + BATCH).map(([key, value]) => ({
        key: decoded(key), value: decoded(value), partition, headers: { from: decoded(header) } }));
      sent.push(...await batch(producers.get(idempotent), {
        topic, messages, acks: acks === "all" ? -1 : Number(acks),
        compression: compressions[compression] }));
    }
    return sent;
  },
  async offsets({ topic, partition, at }) {
    const found = typeof at === "object"
      ? await admin.fetchTopicOffsetsByTimestamp(topic, at.time)
      : await admin.fetchTopicOffsets(topic);
    const row = found.find((each) => each.partition === partition);
    return Number({ earliest: row.low, latest: row.high }[at] ?? row.offset);
  },
  async metadata({ topic }) {
    const { brokers } = await admin.describeCluster();
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return { brokers: brokers.map((each) => each.nodeId).sort(),
             partitions: topics[0].partitions.length };
  },
  async create({ topic, partitions, replication }) {
    await admin.createTopics({ topics: [
      { topic, numPartitions: partitions, replicationFactor: replication }] });
  },
  async describe({ topic, name }) {
    const { resources } = await admin.describeConfigs({ resources: [resource(topic)] });
    return resources[0].configEntries.find((each) => each.configName === name).configValue;
  },
  async alter({ topic, name, value }) {
    await admin.alterConfigs({ resources: [
      { ...resource(topic), configEntries: [{ name, value }] }] });
  },
  async delete_records({ topic, partition, before }) {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] });
  },
  async delete({ topic }) {
    await admin.deleteTopics({ topics: [topic] });
  },
};

// Returns an offset for each message of a request, null for each if it failed.
async function batch(producer, request) {
  try {
    const [answer] = await producer.send(request);
    const first = answer?.baseOffset;
    return request.messages.map((_, place) => (first === undefined ? -1 : Number(first) + place));
  } catch (error) {
    if (!(error instanceof KafkaJSError)) throw error;
    console.error(error);
    return request.messages.map(() => null);
  }
}

async function main() {
  await admin.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: verb, ...request } = JSON.parse(line);
    let answer;
    try {
      answer = { ok: (await verbs[verb](request)) ?? null };
    } catch (error) {
      if (!(error instanceof KafkaJSError)) throw error;
      answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  for (const producer of producers.values()) await producer.disconnect();
  await admin.disconnect();
}

main();
