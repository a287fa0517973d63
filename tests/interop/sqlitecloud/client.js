// Does with the official JavaScript client what an application does, and prints what it saw as JSON.
// Run where the client is installed: node client.js CONNECTION_STRING

const { createRequire } = require("module");
const path = require("path");
const { Database } = createRequire(path.join(process.cwd(), "main.js"))("@sqlitecloud/drivers");

const address = process.argv[2];
const patience = 120_000;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const connected = (options = "") =>
  new Promise((resolve, reject) => {
    const database = new Database(address + options, (error) => (error ? reject(error) : resolve(database)));
  });

async function until(seen, count) {
  const deadline = Date.now() + patience;
  while (seen.length < count && Date.now() < deadline) await pause(50);
}

async function listening(kind, name) {
  const database = await connected();
  const pubsub = await database.getPubSub();
  const seen = [];
  if (kind === "CHANNEL") await pubsub.createChannel(name, false);
  await pubsub.listen(kind, name, (error, result) => seen.push(error ? String(error) : result));
  return { database, pubsub, seen };
}

async function writtenAndRead() {
  const database = await connected("?maxrows=100&compression=1");
  for (let number = 0; number < 3; number++) {
    await database.sql("INSERT INTO foo VALUES(?, ?, ?)", number, `it's; ${number}`, null);
  }
  const rows = await database.sql("SELECT * FROM foo ORDER BY id");
  const every =
    "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT 4000) SELECT i, 'text ' || i AS t, i / 2.0 AS h FROM n";
  const chunked = await database.sql(every);
  const plain = await connected("?compression=0");
  const whole = await plain.sql(every.replace("4000", "40"));
  await database.sql("DELETE FROM foo");
  const refused = await database.sql("SELECT nope").catch((error) => error.message);
  const values = (row) => [row.i, row.t, row.h];
  return {
    rows: rows.map((row) => [row.id, row.col1, row.col2]),
    chunked: [chunked.length, values(chunked[chunked.length - 1])],
    whole: [whole.length, values(whole[whole.length - 1])],
    refused,
  };
}

async function tables() {
  const { database, pubsub, seen } = await listening("TABLE", "foo");
  for (let number = 0; number < 500; number++) {
    await database.sql("INSERT INTO foo VALUES(?, ?, ?)", number, "x".repeat(7 * number), null);
  }
  await until(seen, 500);
  const ids = seen.map((message) => message.payload[0].id);
  const texts = seen.reduce((sum, message) => sum + message.payload[0].col1.length, 0);
  await pubsub.unlisten("TABLE", "foo");
  await database.sql("DELETE FROM foo");
  await pause(500);
  return { ids, texts, after_unlisten: seen.length - 500, envelope: Object.keys(seen[0]).sort() };
}

async function channels() {
  const { database, pubsub, seen } = await listening("CHANNEL", "c1");
  await pubsub.notifyChannel("c1", "x y");
  await until(seen, 1);
  const connections = await database.sql("LIST PUBSUB CONNECTIONS");
  await pubsub.setPubSubOnly();
  const other = await connected();
  await other.sql("NOTIFY ? ?;", "c1", "still there");
  await until(seen, 2);
  return { payloads: seen.map((message) => message.payload), listed: JSON.stringify(connections).includes("c1") };
}

(async () => {
  const saw = { sql: await writtenAndRead(), tables: await tables(), channels: await channels() };
  process.stdout.write(JSON.stringify(saw), () => process.exit(0));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
