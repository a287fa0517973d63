import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;

import org.agrona.concurrent.UnsafeBuffer;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.json.JsonTokenListener;
import uk.co.real_logic.sbe.otf.OtfHeaderDecoder;
import uk.co.real_logic.sbe.otf.OtfMessageDecoder;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/**
 * Asks the official SBE tool how it reads schemas and messages: one request a line, one answer a line, as JSON.
 *
 * <pre>
 * schema BASE64   {"accepted": true, "told": "warnings"} or {"accepted": false, "told": "why not"}
 * message HEX     {"text": "the tool's JSON", "consumed": 42} or {"failed": "why"}; of the schema asked last
 * </pre>
 */
public final class OfficialTool {
    private static Ir ir;

    public static void main(final String[] arguments) throws Exception {
        final BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            final String[] words = line.split(" ", 2);
            final String operand = words.length > 1 ? words[1] : "";
            answers.println(words[0].equals("schema") ? schema(operand) : message(operand));
        }
    }

    private static String schema(final String base64) {
        final ByteArrayOutputStream told = new ByteArrayOutputStream();
        final ParserOptions options = ParserOptions.builder()
            .stopOnError(false)
            .errorPrintStream(new PrintStream(told, true, StandardCharsets.UTF_8))
            .build();
        ir = null;
        try {
            final byte[] document = Base64.getDecoder().decode(base64);
            ir = new IrGenerator().generate(XmlSchemaParser.parse(new ByteArrayInputStream(document), options));
            return "{\"accepted\": true, \"told\": " + quoted(told.toString(StandardCharsets.UTF_8)) + "}";
        } catch (final Exception | StackOverflowError error) {
            final String why = told.toString(StandardCharsets.UTF_8) + error;
            return "{\"accepted\": false, \"told\": " + quoted(why) + "}";
        }
    }

    private static String message(final String hex) {
        final UnsafeBuffer buffer = new UnsafeBuffer(HexFormat.of().parseHex(hex));
        final StringBuilder text = new StringBuilder();
        try {
            final OtfHeaderDecoder header = new OtfHeaderDecoder(ir.headerStructure());
            final int consumed = OtfMessageDecoder.decode(
                buffer,
                header.encodedLength(),
                header.getSchemaVersion(buffer, 0),
                header.getBlockLength(buffer, 0),
                ir.getMessage(header.getTemplateId(buffer, 0)),
                new JsonTokenListener(text));
            return "{\"text\": " + quoted(text.toString()) + ", \"consumed\": " + consumed + "}";
        } catch (final Exception error) {
            return "{\"failed\": " + quoted(error.toString()) + "}";
        }
    }

    private static String quoted(final String text) {
        final StringBuilder escaped = new StringBuilder("\"");
        for (final char c : text.toCharArray()) {
            if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
                escaped.append(c);
            } else {
                escaped.append(String.format("\\u%04x", (int) c));
            }
        }
        return escaped.append('"').toString();
    }
}
