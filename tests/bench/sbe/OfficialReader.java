import java.io.ByteArrayInputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

import org.agrona.concurrent.UnsafeBuffer;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.json.JsonTokenListener;
import uk.co.real_logic.sbe.otf.OtfHeaderDecoder;
import uk.co.real_logic.sbe.otf.OtfMessageDecoder;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/**
 * Decodes messages with the official on-the-fly decoder, each to JSON in memory, again and again.
 *
 * Arguments: schema, file of messages (each behind its length, four bytes, big-endian), rounds. Prints the nanoseconds of
 * this thread per message, a line for each round; the first rounds warm the compiler up.
 */
public final class OfficialReader {
    public static void main(final String[] arguments) throws Exception {
        final byte[] document = Files.readAllBytes(Path.of(arguments[0]));
        final Ir ir = new IrGenerator().generate(
            XmlSchemaParser.parse(new ByteArrayInputStream(document), ParserOptions.DEFAULT));
        final OtfHeaderDecoder header = new OtfHeaderDecoder(ir.headerStructure());
        final byte[] octets = Files.readAllBytes(Path.of(arguments[1]));
        final UnsafeBuffer buffer = new UnsafeBuffer(octets);
        final ByteBuffer lengths = ByteBuffer.wrap(octets);
        final StringBuilder text = new StringBuilder();
        final var threads = ManagementFactory.getThreadMXBean();
        for (int round = Integer.parseInt(arguments[2]); round > 0; round--) {
            final long began = threads.getCurrentThreadCpuTime();
            int messages = 0;
            for (int at = 0; at < octets.length; messages++) {
                final int length = lengths.getInt(at);
                final int start = at + 4;
                text.setLength(0);
                OtfMessageDecoder.decode(
                    buffer,
                    start + header.encodedLength(),
                    header.getSchemaVersion(buffer, start),
                    header.getBlockLength(buffer, start),
                    ir.getMessage(header.getTemplateId(buffer, start)),
                    new JsonTokenListener(text));
                at = start + length;
            }
            System.out.println((threads.getCurrentThreadCpuTime() - began) / (double)messages);
        }
    }
}
