import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads each message of a golden file with Kafka's own class and writes it again: the bytes must be
 * equal.  A line is the key of the API, request or response, the version, and the bytes in hex.
 */
public class ReadAndWrite {
    public static void main(String[] arguments) throws Exception {
        int count = 0;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
            ApiMessage message = words[1].equals("request") ? type.newRequest() : type.newResponse();
            short version = Short.parseShort(words[2]);
            byte[] data = HexFormat.of().parseHex(words.length > 3 ? words[3] : "");
            ByteBufferAccessor source = new ByteBufferAccessor(ByteBuffer.wrap(data));
            message.read(source, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(again), cache, version);
            if (source.remaining() > 0 || !Arrays.equals(again.array(), data)) {
                throw new AssertionError(line);
            }
            count++;
        }
        System.out.println(count + " messages");
    }
}
