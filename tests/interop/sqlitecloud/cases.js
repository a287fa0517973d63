// Sends with the official JavaScript client the kinds of things that the vendor's own tests of it send, one group after
// the other, and prints what it got as JSON: bigints as "1n", bytes as {"hex"}, errors as their codes, offset and text.
// Run where the client is installed: node cases.js CONNECTION_STRING

const { createRequire } = require("module");
const path = require("path");
const { Database, SQLiteCloudRowset } = createRequire(path.join(process.cwd(), "main.js"))("@sqlitecloud/drivers");

const address = process.argv[2];
const patience = 60_000;
console.error = () => {}; // the client logs each error that it hands on

const failed = (error) => ({ error: [error.errorCode, error.externalErrorCode, error.offsetCode, error.message] });

function plain(result) {
  if (result instanceof SQLiteCloudRowset) return [...result].map((_row, at) => cells(result, at));
  return result;
}

const cells = (rows, at) => rows.columnsNames.map((_name, column) => plainCell(rows.getItem(at, column)));
const plainCell = (cell) => (Buffer.isBuffer(cell) ? { hex: cell.toString("hex") } : cell);

function opened(target, settings = {}) {
  return new Promise((resolve, reject) => {
    const database = new Database({ connectionstring: target, ...settings }, (error) =>
      error ? reject(error) : resolve(database),
    );
  });
}

const ask = (database, text, ...parameters) => database.sql(text, ...parameters).then(plain, failed);

async function askAll(database, texts) {
  const answers = {};
  for (const text of texts) answers[text] = await ask(database, text);
  return answers;
}

/** Call a method that takes a callback; return what the callback gets. */
const called = (object, method, ...parameters) =>
  new Promise((resolve) => {
    object[method](...parameters, function (error, result) {
      resolve(error ? failed(error) : plain(result ?? null));
    });
  });

async function values() {
  const database = await opened(address);
  const sent = [1, -2, 1.5, "è; '\"", "", null, Buffer.from([0, 255, 32]), Buffer.alloc(0), undefined];
  const marks = sent.map(() => "?").join(", ");
  const kinds = sent.map(() => "typeof(?)").join(", ");
  const found = {
    back: await ask(database, `SELECT ${marks}`, ...sent),
    types: await ask(database, `SELECT ${kinds}`, ...sent),
    infinite: (await database.sql("SELECT ? AS x", -Infinity)).map((row) => String(row.x)),
    nan: await ask(database, "SELECT ?", NaN),
    no_integer: await ask(database, "SELECT ?", 1e21),
    still_there: await ask(database, "SELECT 1"),
  };
  for (const mode of ["bigint", "mixed", "number"]) {
    const other = await opened(address, { safe_integer_mode: mode });
    found[mode] = await ask(other, "SELECT ?, ?, 7", 9223372036854775807n, -9223372036854775808n);
    other.close();
  }
  const template = "it's";
  found.template = plain(await database.sql`SELECT ${template}, ${7} + 1`);
  database.close();
  return found;
}

async function writes() {
  const database = await opened(address);
  const columns = "id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, age";
  const add = "INSERT INTO people(name, age) VALUES ('A', 42), ('B', 43)";
  const rename = "UPDATE people SET name = ? WHERE id = ?";
  const found = {
    made: await ask(database, `DROP TABLE IF EXISTS people; CREATE TABLE people(${columns})`),
    added: await ask(database, add),
    run: await called(database, "run", "INSERT INTO people(name) VALUES (?); ", "C"),
    batch: await ask(database, "UPDATE people SET age = 1 WHERE id = 1; UPDATE people SET age = 2 WHERE id = 2; "),
    batch_bound: await ask(database, `${rename}; SELECT name FROM people WHERE id < ?`, "E", 1, 3),
    last_only: await ask(database, "SELECT 1; SELECT 2, 3"),
    returning: await ask(database, "INSERT INTO people(name) VALUES (?) RETURNING id, name", "R"),
    deleted: await ask(database, "DELETE FROM people WHERE id = ?", 4),
    nothing: await ask(database, "; "),
    begun: await ask(database, "BEGIN; INSERT INTO people(name) VALUES ('gone')"),
    within: await ask(database, "INSERT INTO people(name) VALUES (NULL)"),
    rolled_back: await ask(database, "ROLLBACK; SELECT count(*) FROM people"),
    committed: await ask(database, "BEGIN; INSERT INTO people(name) VALUES ('D'); COMMIT; SELECT count(*) FROM people"),
    none_open: await ask(database, "COMMIT"),
  };
  database.close();
  return found;
}

async function statements() {
  const database = await opened(address);
  const found = {};
  const select = database.prepare("SELECT name FROM people WHERE id = ?;");
  found.all = [await called(select, "all", 1), await called(select, "all", 2), await called(select, "all")];
  found.get = await called(select, "get", 2);
  found.none = [await called(select, "all", -1), await called(select, "get", -1)];
  const few = database.prepare("SELECT id FROM people WHERE id < ? ORDER BY id");
  const ids = [];
  found.each = await new Promise((resolve) => {
    few.each(3, (_error, row) => ids.push(row.id), (_error, count) => resolve([count, ids]));
  });
  found.run = await called(database.prepare("UPDATE people SET age = ? WHERE id = ?;"), "run", 9, 1);
  found.key = await called(database.prepare("SET CLIENT KEY COMPRESSION TO ?; "), "run", 1);
  found.exec = await called(database, "exec", "UPDATE people SET age = 8; SELECT 1");
  database.close();
  return found;
}

async function errors() {
  const database = await opened(address);
  const found = await askAll(database, [
    "SELECT nope",
    "SELECT 1; SELECT nope; SELECT 2",
    "SELECT * FROM missing",
    "BOGUS SQL MEISTER",
    "SET BOGUS STATEMENT TO 1;",
    "INSERT INTO people(name) VALUES (NULL)",
    "INSERT INTO people(id, name) VALUES (1, 'again')",
    "TEST ERROR",
    "TEST EXTERROR",
    "USE DATABASE none.db",
    "AUTH USER  PASSWORD s3cret",
    "ENABLE PLUGIN p",
    "LIST NODES",
    "SELECT 1",
  ]);
  database.close();
  found.events = await new Promise((resolve) => {
    const seen = [];
    const other = new Database(address);
    other.on("open", () => seen.push("open") && other.exec("BOGUS"));
    other.on("error", (error) => seen.push(error.message) && other.close());
    other.on("close", () => resolve([...seen, "close"]));
  });
  return found;
}

async function rowsets() {
  const database = await opened(address);
  const described = await database.sql("SELECT id, age + 1 AS more, name FROM people LIMIT 2");
  await database.sql("CREATE TABLE IF NOT EXISTS blobs(id INTEGER PRIMARY KEY, octets BLOB NOT NULL)");
  const numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) ";
  await database.sql(`${numbers} INSERT INTO blobs SELECT i, randomblob(?) FROM n`, 100, 32);
  const blobs = await database.sql("SELECT octets FROM blobs");
  const large = Buffer.alloc(3_000_000, 7);
  await database.sql("INSERT INTO blobs VALUES (1000, ?)", large);
  const [{ octets }] = await database.sql("SELECT octets FROM blobs WHERE id = 1000");
  const text = "x".repeat(1_000_000);
  const [{ long }] = await database.sql(`SELECT '${text}' AS long`);
  let many = "";
  for (let number = 0; number < 5000; number++) many += `SELECT ${number} AS n; `;
  const chunked = [];
  for (let time = 0; time < 2; time++) {
    const rows = await database.sql("TEST ROWSET_CHUNK");
    chunked.push([rows.length, rows[0].key, rows[3].key, rows[146].key]);
  }
  const found = {
    metadata: described.metadata,
    sliced: plain((await database.sql(`${numbers} SELECT i FROM n`, 50)).slice(10, 100)).length,
    empty: plain(await database.sql("SELECT * FROM people WHERE id < 0")),
    blobs: [blobs.length, blobs.every((row) => Buffer.isBuffer(row.octets) && row.octets.length === 32)],
    large: [octets.equals(large), long === text],
    chunked,
    many: plain(await database.sql(many)),
    at_once: await Promise.all([...Array(20).keys()].map((number) => ask(database, `SELECT ${number}`))),
    names: (await database.sql("SELECT 42, 'hello', 3 AS \"count\"")).columnsNames,
  };
  database.close();
  return found;
}

async function commands() {
  const database = await opened(address);
  const found = await askAll(database, [
    "PING",
    "TEST STRING COMPRESSED",
    "TEST ARRAY0",
    "TEST STRING NOT_EXISTS",
    "GET CLIENT KEY MAXROWS",
    "SET CLIENT KEY ID TO 10",
    "REMOVE CLIENT KEY ID",
    "GET CLIENT KEY nope",
    "GET SQL nope",
    "GET DATABASE NAME",
    "LIST DATABASES",
    "CREATE DATABASE other.db; USE DATABASE other.db; GET DATABASE",
    "UNUSE DATABASE; REMOVE DATABASE other.db",
    "REMOVE DATABASE other.db",
    "REMOVE DATABASE other.db IF EXISTS",
    "USE DATABASE :memory:; SELECT printf('%.*c', 3, 'x')",
    "CREATE CHANNEL here; LIST CHANNELS",
    'NOTIFY here "a message"',
    "UNLISTEN here",
    "REMOVE CHANNEL here; LIST CHANNELS",
  ]);
  const array = await database.sql("TEST ARRAY");
  found.array = array.map((each) => (Buffer.isBuffer(each) ? each.length : each));
  await database.sql("USE DATABASE shop.db");
  found.metadata = (await database.sql("LIST METADATA")).columnsNames;
  found.of_table = plain(await database.sql("LIST METADATA TABLE people"));
  database.close();
  return found;
}

async function options() {
  const [server] = address.split("/shop.db");
  const nobody = server.replace("u:p@", "");
  const select = "SELECT 'abcdef' AS t, x'0102' AS b UNION ALL SELECT 'gh', NULL";
  const found = {};
  const keys = ["zerotext=1", "noblob=1", "maxdata=4", "maxrows=1", "maxrowset=60", "compression=0", "non_linearizable=1"];
  for (const option of keys) {
    const database = await opened(`${address}?${option}`);
    found[option] = await ask(database, select);
    database.close();
  }
  for (const target of [
    `${server}/made.db?create=1`,
    `${server}/none.db`,
    `${server}/:memory:`,
    server,
    `${nobody}/shop.db?apikey=k`,
    `${nobody}/shop.db?token=t`,
    `${server}/shop.db?password_hashed=1`,
  ]) {
    const database = await opened(target).catch(failed);
    found[target.replace(server, "").replace(nobody, "")] = database.error ? database : await ask(database, "SELECT 1");
    database.close?.();
  }
  return found;
}

async function pubsub() {
  const database = await opened(address);
  const listener = await database.getPubSub();
  const seen = [];
  const collect = (error, message, own) => seen.push([error, message?.channel, message?.payload, own]);
  const name = "test-channel-4b1f0c1e-8a5e-4a0c-9a40-7d8c7f3b7b10";
  const until = async (count) => {
    const deadline = Date.now() + patience;
    while (seen.length < count && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  const listed = async () => (await database.sql("LIST PUBSUB CONNECTIONS;")).map((row) => row.chname);
  const makes = [await listener.createChannel(name), await listener.createChannel(name).catch(failed)];
  const found = {
    made: [...makes, await listener.createChannel(name, false)],
    listens: [await listener.listen("CHANNEL", name, collect, { own: 1 })],
  };
  await listener.notifyChannel(name, "in a bottle");
  await until(1);
  found.listens.push(await listener.listen("TABLE", "people", collect, { own: 2 }));
  await database.sql`UPDATE people SET name = ${"Zoë"} WHERE id = ${1}`;
  await until(2);
  found.listed = await listed();
  found.stops = [await listener.unlisten("CHANNEL", name), await listener.unlisten("TABLE", "people"), await listed()];
  await database.sql("UPDATE people SET name = 'not told' WHERE id = 1");
  await listener.notifyChannel(name, "not told");
  found.removed = [await listener.removeChannel(name), await listener.removeChannel(name).catch(failed)];
  await listener.listen("TABLE", "people", collect, { own: 3 });
  found.only = await listener.setPubSubOnly();
  found.main = await ask(database, "SELECT 1");
  found.connected = [listener.connected()];
  const other = await opened(address);
  await other.sql("UPDATE people SET name = 'told' WHERE id = 1");
  await until(3);
  listener.close();
  found.connected.push(listener.connected());
  other.close();
  return { ...found, seen };
}

const readable = (_key, value) => (typeof value === "bigint" ? `${value}n` : value);

(async () => {
  const saw = {};
  const groups = [values, writes, statements, errors, rowsets, commands, options, pubsub];
  for (const group of groups) saw[group.name] = await group();
  process.stdout.write(JSON.stringify(saw, readable), () => process.exit(0));
})().catch((error) => {
  process.stderr.write(`${error.stack}\n`, () => process.exit(1));
});
