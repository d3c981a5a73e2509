// A host, written on the official TypeScript SDK as hosts are: connects to `sandbridge serve`, uses all of it, and
// prints what it got as one JSON object. The tests are in test_sdk_hosts.py.
//
//   node host.mjs '{"modules": DIRECTORY, "package": "sdk" | "client", "url": URL | null, "command": [...], "cwd": DIRECTORY}'
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const given = JSON.parse(process.argv[2]);
const require = createRequire(join(given.modules, "_"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const old = given.package === "sdk";
const { Client, StreamableHTTPClientTransport } = old
  ? { ...(await load("@modelcontextprotocol/sdk/client/index.js")), ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")) }
  : await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load(old ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio");
const schemas = old ? await load("@modelcontextprotocol/sdk/types.js") : null;

const client = new Client(
  { name: "host", version: "1" },
  { capabilities: { elicitation: { form: {} } }, ...(old ? {} : { versionNegotiation: { mode: "auto" } }) },
);
const asked = [];
const answers = (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: { decision: given.decision } };
};
client.setRequestHandler(old ? schemas.ElicitRequestSchema : "elicitation/create", answers);

const transport = given.url
  ? new StreamableHTTPClientTransport(new URL(given.url))
  : new StdioClientTransport({
      command: given.command[0],
      args: given.command.slice(1),
      cwd: given.cwd,
      env: { PATH: process.env.PATH, ...given.env },
      stderr: "ignore",
    });
await client.connect(transport);

// What a model's host does: v1 takes the schema of results as its second argument, v2 does not.
const call = (name, args, options) => {
  const params = { name, arguments: args };
  return old ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const refused = async (promise) => {
  try {
    await promise;
    return null;
  } catch (error) {
    return error.message;
  }
};

const got = { asked };
got.revision = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null;
got.server = client.getServerVersion().name;
got.instructions = client.getInstructions();
got.tools = (await client.listTools()).tools; // from here on the client checks structuredContent against the schemas
const progress = [];
got.ran = await call("run_program", { program: given.program }, { onprogress: (each) => progress.push(each) });
got.progress = progress;
got.found = await call("search_tools", { query: "an image of the logo" });
got.failed = await call("run_program", { program: "throw new RangeError('too far')" });
got.wrong = await call("run_program", { code: "1" });
got.unknown = await refused(call("approve", {}));
got.approved = await call("run_program", { program: given.asks });

const picture = got.ran.content.find((block) => block.type === "resource_link");
got.picture = (await client.readResource({ uri: picture.uri })).contents[0];
got.resources = (await client.listResources()).resources;
got.read = (await client.readResource({ uri: got.resources[0].uri })).contents[0];
got.templates = (await client.listResourceTemplates()).resourceTemplates;
got.missing = await refused(client.readResource({ uri: "sandbridge://nobody/x" }));
got.prompts = (await client.listPrompts()).prompts;
got.prompt = await client.getPrompt({ name: "everything/args-prompt", arguments: { city: "Graz" } });
got.completed = (
  await client.complete({
    ref: { type: "ref/prompt", name: "everything/completable-prompt" },
    argument: { name: "department", value: "Eng" },
  })
).completion.values;

// Cancelled in the middle of a call: the function itself says when it began and how it ended, in files of its own.
const stop = new AbortController();
const slow = refused(call("run_program", { program: "await tools.slow({})" }, { signal: stop.signal }));
const seen = async (name) => {
  while (!existsSync(join(given.cwd, name))) await new Promise((resolve) => setTimeout(resolve, 20));
};
await seen("started");
stop.abort("enough");
got.cancelled = await slow;
await seen("cancelled");

await client.close();
console.log(JSON.stringify(got));
process.exit(0);
