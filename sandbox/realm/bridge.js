// Part 4 of the realm: tools, output, timers, the life of a program, and the functions that the worker holds.

// ---- calls and timers -----------------------------------------------------------------------------------------
let pending = create(null), heard = create(null); // id -> entry; id -> somebody listens to this call's promise
let nextId = 1, outstanding = 0, over = false;

class ToolError extends E {}
defineProperty(ToolError.prototype, 'name', hidden('ToolError'));
expose('ToolError', ToolError);
const toolError = (reply, call) => {
  const e = new E(reply.message);
  setPrototypeOf(e, ToolError.prototype);
  const visible = (name, value) => defineProperty(e, name, own(value));
  visible('code', reply.code);
  visible('tool', reply.tool);
  visible('retryable', hasOwn(reply, 'retryable') ? reply.retryable : false);
  visible('details', hasOwn(reply, 'details') ? reply.details : null);
  defineProperty(e, 'stack', hidden('ToolError: ' + reply.message + '\n    at ' + reply.tool + ' (line ' + call.line + ')'));
  errors.set(e, { __proto__: null, call: call.id, tool: reply.tool, code: reply.code, line: call.line, column: call.column });
  return e;
};

const ENDED = 'the program has ended: no further call is possible';
const callTool = (name, given) => {
  if (over) throw new E(ENDED);
  // The program's getters, traps and toJSON run here, once, before any call exists; a primitive string comes out.
  let text = '[', left = limits.argument_bytes;
  for (let i = 0; i < given.length; i++) {
    if (i === 0 && typeof given[0] === 'function') throw new TE('a tool cannot be given a function: pass plain data to ' + name);
    const one = writer(true, left, 'argument' + (i ? ' ' + (i + 1) : ''))(given[i]);
    text += (i ? ',' : '') + (one === undefined ? 'null' : one);
    left = limits.argument_bytes - text.length;
  }
  if (over) throw new E(ENDED); // a getter among the arguments has called exit()
  const at = here();
  let resolve, reject;
  const promise = new P((yes, no) => { resolve = yes; reject = no; });
  const id = nextId++;
  pending[id] = { __proto__: null, id, resolve, reject, line: at.line, column: at.column };
  // await, then(), all() and the like ask a promise for its constructor: that is how we learn that somebody listens.
  defineProperty(promise, 'constructor', { __proto__: null, configurable: true, enumerable: false, set: undefined,
    get: opaque('constructor', () => { heard[id] = true; return P; }) });
  outstanding++;
  push('calls', '{"id":' + id + ',"tool":' + quote(name) + ',"arguments":' + text + '],"line":' + at.line + ',"column":' + at.column + '}');
  return promise;
};

const makeTools = (list) => {
  const root = create(null), spaces = create(null);
  const space = (name) => {
    if (spaces[name] === undefined) {
      spaces[name] = create(null);
      defineProperty(root, name, locked(spaces[name], true));
    }
    return spaces[name];
  };
  for (let i = 0; i < list.length; i++) {
    const { name, path } = list[i], last = path[path.length - 1];
    const f = opaque(last, (...given) => callTool(name, given));
    defineProperty(f, 'length', { __proto__: null, value: 1 }); // a program that returns it, bound even, does not call it
    freeze(f);
    defineProperty(path.length === 1 ? root : space(path[0]), last, locked(f, true));
    if (!(name in root) && name !== 'then') defineProperty(root, name, locked(f, false)); // `await tools` asks for then
  }
  for (const name in spaces) freeze(spaces[name]);
  return freeze(root);
};
const install = (on, root, inputs) => {
  defineProperty(on, 'tools', locked(root, true));
  for (const name in root) if (!(name in on)) defineProperty(on, name, hidden(root[name])); // a bare `get_order(...)` works too
  defineProperty(on, 'inputs', hidden(inputs));
};

const timer = (ms, fire) => {
  ms = NumberOf(ms); // asks the program, which may end there
  if (over) return 0;
  ms = ms > 0 ? min(ms, 0x7FFFFFFF) : 0;
  const id = nextId++;
  pending[id] = { __proto__: null, id, fire };
  outstanding++;
  push('timers', '{"id":' + id + ',"ms":' + ms + ',"line":' + here().line + '}');
  return id;
};
expose('setTimeout', opaque('setTimeout', (f, ms, ...given) => {
  if (typeof f !== 'function') throw new TE('setTimeout needs a function as its first argument');
  return timer(ms, () => { try { apply(f, undefined, given); } catch (e) { fail(e); } });
}));
expose('clearTimeout', opaque('clearTimeout', (id) => {
  if (typeof id !== 'number' || pending[id] === undefined || pending[id].fire === undefined) return;
  delete pending[id];
  outstanding--;
  push('cleared', '' + id);
}));
expose('sleep', opaque('sleep', (ms) => new P((resolve) => { timer(ms, resolve); })));

// ---- output ---------------------------------------------------------------------------------------------------
let emittedLeft = 0, logLeft = 0, surplus = 0;
const emit = (kind, json) => {
  emittedLeft -= utf8(json) + 16; // a piece costs its envelope too, here and in the host
  if (emittedLeft < 0 || over) { surplus++; return; }
  push(kind, json);
};
const text = (...given) => {
  let line = '';
  for (let i = 0; i < given.length; i++) {
    const v = given[i];
    if (typeof v === 'object' && v !== null && isPromise(v)) {
      notice('missing_await', 'text() was given a promise: write text(await ...)', here().line);
    }
    line += (i ? ' ' : '') + shown(v);
  }
  if (line.length > limits.value_bytes) { surplus++; return; }
  emit('text', quote(line));
};
for (const name of ['text', 'print', 'output']) expose(name, opaque(name, text));
expose('image', opaque('image', (given) => {
  const of = (...names) => {
    for (let i = 0; i < names.length; i++) {
      const found = given[names[i]]; // asked once: what is looked at is what is sent
      if (typeof found === 'string') return found;
    }
    return '';
  };
  let data = '', type = '', handle = '';
  if (typeof given === 'string') data = given;
  else if (typeof given === 'object' && given !== null) {
    data = of('data', 'image_url', 'url');
    type = of('mime_type', 'mimeType', 'media_type');
    handle = of('handle');
  }
  const comma = indexOf(data, ',');
  if (slice(data, 0, 5) === 'data:' && comma > 0) {
    const semicolon = indexOf(data, ';');
    type = slice(data, 5, semicolon > 0 && semicolon < comma ? semicolon : comma);
    data = slice(data, comma + 1);
  }
  if (handle === '' && (data === '' || slice(type, 0, 6) !== 'image/')) {
    throw new TE('image() needs a data URL ("data:image/png;base64,..."), { mime_type, data } or a picture that a tool returned');
  }
  emit('images', '{"mime_type":' + quote(type) + ',"data":' + quote(data) + ',"handle":' + quote(handle) + '}');
}));
const FLAT = 1 << 22; // to slice a longer string would flatten it, which may take more memory than there is
const beginning = (s) => (s.length > FLAT ? '[a string of ' + s.length + ' characters]' : slice(s, 0, logLeft + 1));
const console = create(null);
for (const level of ['log', 'info', 'warn', 'error', 'debug']) {
  const write = (...given) => {
    if (logLeft <= 0 || over) { droppedLogs++; return; }
    let line = '';
    for (let i = 0; i < given.length && line.length <= logLeft; i++) {
      line += (i ? ' ' : '') + (typeof given[i] === 'string' ? beginning(given[i]) : shown(given[i]));
    }
    const json = quote(slice(line, 0, logLeft));
    logLeft -= utf8(json) + 16; // a line costs its envelope too: many empty ones are a flood as well
    if (logLeft < 0 || over) { droppedLogs++; return; }
    push('logs', '{"level":"' + level + '","message":' + json + '}');
  };
  defineProperty(console, level, locked(freeze(opaque(level, write)), true));
}
defineProperty(G, 'console', locked(freeze(console), false));

// ---- how a program ends ----------------------------------------------------------------------------------------
const describe = (e) => { // primitive texts only, cut; never throws
  const made = { __proto__: null, name: 'Error', message: '', line: 0, column: 0, tool: '', call: 0, code: '' };
  try {
    if ((typeof e === 'object' && e !== null) || typeof e === 'function') {
      const name = e.name, message = e.message, stack = e.stack;
      if (typeof name === 'string') made.name = slice(name, 0, 100);
      made.message = typeof message === 'string' ? slice(message, 0, 4000) : '';
      if (made.message === '' && !isError(e)) made.message = slice(shown(e), 0, 4000);
      const at = typeof stack === 'string' ? position(stack) : nowhere;
      made.line = at.line;
      made.column = at.column;
      const ours = errors.get(e);
      if (ours !== undefined) { made.line = ours.line; made.column = ours.column; made.tool = ours.tool; made.call = ours.call; made.code = ours.code; }
    } else made.message = typeof e === 'symbol' ? 'a symbol' : slice('' + e, 0, 4000);
  } catch { made.message = 'an error that cannot be described'; }
  return made;
};
let ending = ''; // the wave's `end`, once there is one
const finish = (json) => { if (!over) { over = true; ending = json; } };
const fail = (e) => {
  if (over || e === leaving) return;
  const made = describe(e);
  finish('{"type":"threw","code":' + quote(made.code) + ',"name":' + quote(made.name) + ',"message":' + quote(made.message)
    + ',"line":' + made.line + ',"column":' + made.column + ',"tool":' + quote(made.tool) + ',"call":' + made.call + '}');
};
const leaving = freeze(create(null)); // thrown by exit() to unwind; catching it changes nothing any more
const complete = (v) => {
  if (over) return;
  let json;
  try {
    if (typeof v === 'object' && v !== null && isError(v)) notice('error_value', 'the program returned an Error object: throw it, or return what you found');
    json = writer(false, limits.value_bytes, '$')(v);
  } catch (e) { fail(e); return; }
  finish('{"type":"returned"' + (json === undefined ? '' : ',"value":' + json) + '}');
};
// Promises inside the value are awaited, so that a forgotten await does not lose data. Own data properties only, and
// only so many: no getter runs twice.
const promisesIn = (v, found, depth) => {
  if (typeof v !== 'object' || v === null || depth > 8 || found.seen++ > 2000) return;
  const proto = getPrototypeOf(v);
  if (proto !== ObjectPrototype && proto !== null && !isArray(v)) {
    if (settledValues.get(v) === undefined && !isError(v) && isPromise(v)) { settledValues.set(v, { __proto__: null }); found[found.count++] = v; }
    return;
  }
  const names = isArray(v) ? null : keys(v), length = names === null ? min(v.length, 2000) : names.length;
  for (let i = 0; i < length && found.seen <= 2000; i++) {
    const member = getOwnPropertyDescriptor(v, names === null ? i : names[i]);
    if (member !== undefined && hasOwn(member, 'value')) promisesIn(member.value, found, depth + 1);
  }
};
const quiet = (p) => defineProperty(p, 'constructor', { __proto__: null, value: undefined, configurable: true }); // no species
const conclude = (v) => {
  const found = { __proto__: null, count: 0, seen: 0 };
  try { promisesIn(v, found, 0); } catch { found.count = 0; }
  if (found.count === 0) { complete(v); return; }
  notice('promises_in_result', found.count + ' promise(s) inside the value were awaited: write `await` where you call');
  let waiting = found.count;
  const arrived = () => { if (--waiting === 0) complete(v); };
  for (let i = 0; i < found.count; i++) {
    const one = found[i];
    try {
      then(one, (ok) => { settledValues.set(one, { __proto__: null, ok }); arrived(); },
        (error) => { settledValues.set(one, { __proto__: null, error }); arrived(); });
    } catch { settledValues.set(one, { __proto__: null, ok: '[Promise]' }); arrived(); } // its species throws
  }
};
const follow = (result, value) => { // call back with what a promise or thenable comes to, asking the program nothing more than it must
  let native = false;
  try { quiet(result); then(result, value, fail); native = true; } catch { /* not a native promise */ }
  if (native) return;
  const adopted = new P((resolve) => { resolve(result); });
  quiet(adopted);
  then(adopted, value, fail);
};
const settled = (v) => { // a returned function of no arguments is called, once
  if (typeof v !== 'function') { conclude(v); return; }
  let made;
  try {
    const parameters = getOwnPropertyDescriptor(v, 'length');
    if (parameters !== undefined && parameters.value !== 0) { conclude(v); return; }
    const prototype = getOwnPropertyDescriptor(v, 'prototype');
    if (prototype !== undefined && prototype.writable === false) { conclude(v); return; } // a class: it cannot be called
    made = apply(v, undefined, []);
  } catch (e) { fail(e); return; }
  follow(made, conclude);
};
expose('exit', opaque('exit', (v) => { conclude(v); throw leaving; }));

// A promise used as text is a forgotten `await`: it reads as ever, and is said.
defineProperty(P.prototype, toPrimitive, hidden({ [toPrimitive](hint) {
  notice('missing_await', 'a promise was used as ' + (hint === 'number' ? 'a number' : 'text') + ': write `await` before what gives it', here().line);
  return '[object Promise]';
} }[toPrimitive]));

const lost = []; // promises made by Promise.reject, to be able to say that nobody looked at one
const rejecting = uncurry(P.reject);
defineProperty(P, 'reject', hidden({ reject(reason) {
  const p = rejecting(this, reason);
  if (this === P && lost.length < 100) {
    const entry = { __proto__: null, heard: false, message: briefly(reason), line: here().line };
    append(lost, entry);
    defineProperty(p, 'constructor', { __proto__: null, configurable: true, enumerable: false, set: undefined,
      get: opaque('constructor', () => { entry.heard = true; return P; }) });
  }
  return p;
} }.reject));

// ---- what the worker holds --------------------------------------------------------------------------------------
// Each is called with one value as its `this`, or takes none; none of them throws.
const held = { __proto__: null };
const takes = (name, f) => {
  held[name] = function () { try { f(this); } catch (e) { fault = 'the realm failed: ' + briefly(e); } };
};

const begin = (on, settings) => {
  now = settings.now_ms;
  chance = settings.seed | 0;
  for (const name in limits) limits[name] = settings[name];
  emittedLeft = limits.value_bytes;
  logLeft = limits.log_bytes;
  lineOffset = settings.line_offset;
  shifts = settings.shifts;
  for (let i = 0; i < settings.awaits.length; i++) awaits += (i ? ',' : '') + settings.awaits[i];
  install(on, makeTools(settings.tools), settings.inputs);
  for (let i = 0; i < settings.notices.length; i++) push('warnings', stringify(settings.notices[i]));
};
takes('boot', (json) => begin(G, parse(json)));
// A rehearsal goes once through what every program needs, so that V8 compiles it while nobody waits. It is over, and
// all that it touched is as new, before any program arrives.
takes('rehearsal', (json) => {
  const stage = create(null);
  begin(stage, parse(json));
  const program = async () => {
    text('a', { b: [1, true, null, 'c'] });
    return [describe(new E('d')).line, await stage.tools.a({ e: [1, true, null, 'f'] }), { g: 1.5 }];
  };
  follow(program(), settled);
});
takes('reset', () => {
  for (const name in limits) limits[name] = 0;
  shifts = [];
  pending = create(null), heard = create(null), entries = create(null);
  nextId = 1, outstanding = notices = first = count = droppedLogs = surplus = emittedLeft = logLeft = lineOffset = now = chance = 0;
  over = closed = false;
  ending = awaits = '';
});
takes('web', (install) => { install(expose, uint32); }); // before any program text
takes('program', (f) => {
  let result;
  try { result = apply(f, undefined, []); } catch (e) { fail(e); return; }
  follow(result, settled);
});
takes('inbox', (json) => {
  const delivery = parse(json); // no reviver; "__proto__" becomes an own property
  now = delivery.now_ms;
  const { replies } = delivery;
  for (let i = 0; i < replies.length; i++) {
    const reply = replies[i], entry = pending[reply.id];
    if (entry === undefined) continue; // a timer that was cleared meanwhile
    delete pending[reply.id];
    outstanding--;
    if (reply.type === 'timer') (0, entry.fire)();
    else if (reply.type === 'value') (0, entry.resolve)(reply.value);
    else (0, entry.reject)(toolError(reply, entry));
  }
});
held.outbox = () => { try { return outbox(); } catch (e) { return '!' + briefly(e); } };

const ITEMS = 50_000; // of one wave: many small ones are split as few large ones are; the host takes twice as many
const KINDS = ['calls', 'timers', 'cleared', 'text', 'images', 'logs', 'warnings'];
// One letter, then the wave: "W" to be sent as it is, "T" if it ends with an error (the worker explains it), "!" a fault.
const outbox = () => {
  if (fault !== '') return '!' + fault;
  if (ending !== '') closing();
  const budget = floor(limits.frame_bytes / 3), parts = create(null); // a UTF-16 unit is at most three bytes
  let size = 0, taken = 0;
  for (; first < count; first++) {
    const { kind, text: json } = entries[first];
    if (size > 0 && (size + json.length > budget || ++taken > ITEMS)) break;
    size += json.length;
    parts[kind] = parts[kind] === undefined ? json : parts[kind] + ',' + json;
    delete entries[first];
  }
  let wave = '{"type":"wave"';
  for (let i = 0; i < KINDS.length; i++) if (parts[KINDS[i]] !== undefined) wave += ',"' + KINDS[i] + '":[' + parts[KINDS[i]] + ']';
  if (first < count || (ending !== '' && size > 0 && size + ending.length > budget)) return 'W' + wave + ',"more":true}';
  if (ending === '') return 'W' + wave + (outstanding === 0 && awaits !== '' ? ',"awaits":[' + awaits + ']}' : '}');
  let ears = '';
  for (const id in heard) ears += (ears === '' ? '' : ',') + id;
  return (charCodeAt(ending, 9) === 116 ? 'T' : 'W') + wave + ',"dropped_logs":' + droppedLogs + ',"heard":[' + ears + '],"end":' + ending + '}';
}
let closed = false;
const closing = () => { // warnings that can only be known at the end
  if (closed) return;
  closed = true;
  if (surplus > 0) notice('truncated', surplus + ' piece(s) given to text() or image() were dropped: together they are over ' + limits.value_bytes + ' bytes');
  if (notices > NOTICES) {
    const more = notices - NOTICES;
    notices = 0;
    notice('truncated', more + ' more warnings were dropped');
  }
  for (let i = 0; i < lost.length; i++) {
    if (!lost[i].heard) notice('unhandled_rejection', 'a rejected promise was not handled: ' + lost[i].message, lost[i].line);
  }
};
return function () { return held[this]; };
