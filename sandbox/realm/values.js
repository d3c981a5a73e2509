// Part 3 of the realm: what leaves it, as JSON text.

const limits = { __proto__: null, argument_bytes: 0, value_bytes: 0, log_bytes: 0, frame_bytes: 0 };
let entries = create(null), first = 0, count = 0, droppedLogs = 0, fault = '';
const push = (kind, text) => { // whole or not at all, also at the end of the stack
  const entry = { __proto__: null, kind, text };
  entries[count] = entry;
  count++;
};
const quote = (text) => stringify(wellFormed(text)); // of a primitive string: asks nothing of the program
const utf8 = (text) => {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = charCodeAt(text, i);
    if (unit > 127) bytes += unit < 2048 || (unit >= 0xD800 && unit < 0xE000) ? 1 : 2;
  }
  return bytes;
};
const NOTICES = 1000; // kept of one run: a loop makes one in each round, and nobody reads so many
let notices = 0;
const notice = (code, message, line) => {
  if (++notices > NOTICES) return;
  push('warnings', '{"code":' + quote(code) + ',"message":' + quote(message) + (line ? ',"line":' + line : '') + '}');
};

// ---- positions: lines of the text that the model sent -----------------------------------------------------------
let lineOffset = 0, shifts = [], awaits = '';
const number = (text, from) => {
  let value = 0, i = from;
  for (let digit; i < text.length && (digit = charCodeAt(text, i) - 48) >= 0 && digit <= 9; i++) value = value * 10 + digit;
  return { __proto__: null, value, end: i };
};
const nowhere = { __proto__: null, line: 0, column: 0 };
const FAR = 1e9; // no text has so many lines: a stack or a function's name that says so is made up
const position = (stack) => { // the first frame in the program's own text
  const found = indexOf(stack, 'program:');
  if (found < 0) return nowhere;
  const line = number(stack, found + 8), column = number(stack, line.end + 1);
  if (line.value > FAR || column.value > FAR) return nowhere; // and written as 1e+21 it would be no whole number
  let at = column.value;
  for (let i = 0; i < shifts.length; i++) {
    if (shifts[i][0] === line.value && column.value >= shifts[i][1]) at = column.value - shifts[i][2];
  }
  return { __proto__: null, line: max(0, line.value - lineOffset), column: max(1, at) };
};
const here = () => { // of an object that inherits nothing: the stack of an error begins with its name, which a getter can give
  const at = { __proto__: null };
  captureStackTrace(at);
  return typeof at.stack === 'string' ? position(at.stack) : nowhere;
};

const DEPTH = 200; // readers on the way (parsers with a recursion limit) must manage it
const settledValues = privateMap(); // promise -> {ok} or {error}
const errors = privateMap(); // ToolError -> {call, tool, code, line, column}
const notOne = (e) => { // a check that fails for want of stack says nothing about the value
  if (isError(e) && getPrototypeOf(e) === RangePrototype) throw e;
  return false;
};
const isPromise = (x) => { // then() throws on anything else before it asks the program
  try { then(x, undefined, () => {}); return true; } catch (e) { return notOne(e); }
};
const has = (brand, x) => { try { return brand(x) !== undefined; } catch (e) { return notOne(e); } };
const briefly = (e) => { // what a thrown value says; never throws
  try {
    if (typeof e === 'object' && e !== null) { const m = e.message; return typeof m === 'string' ? slice(m, 0, 200) : 'an object'; }
    return typeof e === 'symbol' ? 'a symbol' : slice('' + e, 0, 200);
  } catch { return 'something unprintable'; }
};
// Writes one value. Strict: arguments, where what JSON cannot say is refused. Lenient: values, where it is converted
// and noted, and what is over the budget is cut so that the rest stays valid JSON.
const writer = (strict, budget, root) => {
  const inside = privateSet(), trail = create(null), notes = create(null);
  let left = budget, cut = false, noted = 0;
  const path = (depth) => { // of the value at this depth; made only when somebody has to be told
    let text = root;
    for (let i = 1; i <= depth; i++) {
      const step = trail[i];
      if (step !== undefined) text += typeof step === 'number' ? '[' + step + ']' : '.' + slice(step, 0, 40);
    }
    return slice(text, 0, 300);
  };
  const note = (depth, what) => { if (noted++ < 5) notes[noted] = path(depth) + ' ' + what; };
  const spend = (bytes) => {
    left -= bytes;
    if (left >= 0) return;
    if (strict) throw new RE('the arguments are larger than ' + budget + ' bytes (argument_bytes): send less, or a reference');
    cut = true;
  };
  const string = (text) => {
    if (text.length > left && !strict) { // cut before quoting: a long string may not fit into memory twice
      cut = true;
      const kept = text.length > 8 * budget ? 0 : max(0, floor(left / 3)); // to slice a huge one would flatten it
      text = (kept > 0 ? slice(text, 0, kept) : '') + '... ' + (text.length - kept) + ' more characters';
    } else if (strict) spend(text.length);
    const quoted = quote(text);
    spend(strict ? utf8(quoted) - text.length : utf8(quoted));
    return quoted;
  };
  const thrown = (e, depth) => {
    if (strict) throw e;
    note(depth, 'throws');
    return quote('[Throws: ' + briefly(e) + ']');
  };
  const write = (v, depth) => {
    switch (typeof v) {
      case 'string': return string(v);
      case 'boolean': spend(5); return v ? 'true' : 'false';
      case 'number': {
        if (isFinite(v)) { const text = '' + v; spend(text.length); return text; }
        if (strict) throw new TE(path(depth) + ' is ' + v + ', which JSON cannot say: send a finite number or null');
        spend(5); note(depth, 'was ' + v + ' and became null');
        return 'null';
      }
      case 'bigint':
        if (strict) throw new TE(path(depth) + ' is a BigInt, which JSON cannot say: send String(value) or Number(value)');
        note(depth, 'was a BigInt and became a string');
        return string(bigintText(v));
      case 'undefined': return undefined;
      case 'object': break;
      default:
        if (!strict) note(depth, 'is a ' + typeof v + ' and was dropped');
        return undefined;
    }
    if (v === null) { spend(4); return 'null'; }
    spend(2);
    if (depth > DEPTH) {
      if (strict) throw new RE(path(depth) + ' is nested more than ' + DEPTH + ' levels deep');
      cut = true;
      return quote('... deeper than ' + DEPTH + ' levels');
    }
    if (inside.has(v)) {
      if (strict) throw new TE(path(depth) + ' refers back to an object that contains it, which JSON cannot say');
      note(depth, 'refers back to an object that contains it');
      return quote('[Circular]');
    }
    inside.add(v);
    try { return object(v, depth); } catch (e) { return thrown(e, depth); } finally { inside.delete(v); }
  };
  const same = (v, depth) => { trail[depth + 1] = undefined; return write(v, depth + 1); }; // another form of one value
  const object = (v, depth) => {
    const proto = getPrototypeOf(v);
    if (!strict && proto !== ObjectPrototype && proto !== null && !isArray(v)) {
      const special = unusual(v, depth);
      if (special !== null) return special;
    }
    const convert = v.toJSON;
    if (typeof convert === 'function') {
      const made = apply(convert, v, ['']);
      if (typeof made !== 'object' || made === null) return same(made, depth);
      v = made;
    }
    if (isRawJSON !== undefined && isRawJSON(v)) {
      const raw = stringify(v);
      if (charCodeAt(raw, 0) === 34) return string(parse(raw)); // it may hold half a character as an escape
      spend(utf8(raw));
      return raw;
    }
    if (strict) { // boxed primitives, as JSON.stringify has them
      const boxed = isArray(v) || getPrototypeOf(v) === ObjectPrototype ? undefined : unbox(v);
      if (boxed !== undefined) return same(boxed, depth);
    }
    if (isArray(v)) return list(v, v.length, depth);
    const names = keys(v);
    if (!strict && names.length === 0 && proto !== ObjectPrototype && proto !== null) note(depth, 'has no JSON form and became {}');
    let text = '{', sep = '';
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (cut) { text += sep + quote('...') + ':' + quote((names.length - i) + ' more keys'); break; }
      trail[depth + 1] = name;
      let member;
      try { member = write(v[name], depth + 1); } catch (e) { member = thrown(e, depth + 1); }
      if (member === undefined) continue;
      spend(2);
      text += sep + string(name) + ':' + member;
      sep = ',';
    }
    return text + '}';
  };
  const list = (v, length, depth) => {
    let text = '[';
    for (let i = 0; i < length; i++) {
      if (cut) { text += (i ? ',' : '') + quote('... ' + (length - i) + ' more items'); break; }
      trail[depth + 1] = i;
      let item;
      try { item = write(v[i], depth + 1); } catch (e) { item = thrown(e, depth + 1); }
      spend(item === undefined ? 5 : 1); // a hole is written as null
      text += (i ? ',' : '') + (item === undefined ? 'null' : item);
    }
    return text + ']';
  };
  const unbox = (v) => {
    for (let i = 0; i < boxes.length; i++) { try { return boxes[i](v); } catch (e) { notOne(e); } }
    return undefined;
  };
  const unusual = (v, depth) => { // null: nothing special about it
    if (isError(v)) return same({ __proto__: null, name: ownText(v.name, 'Error'), message: ownText(v.message, '') }, depth);
    if (typedTag(v) !== undefined) return list(v, typedLength(v), depth);
    if (has(mapSize, v)) {
      const plain = create(null), pairs = [];
      let named = true;
      mapEach(v, (value, key) => {
        if (typeof key === 'string') plain[key] = value; else named = false;
        append(pairs, [key, value]);
      });
      note(depth, named ? 'was a Map and became an object' : 'was a Map and became a list of entries');
      return same(named ? plain : pairs, depth);
    }
    if (has(setSize, v)) {
      const items = [];
      setEach(v, (value) => { append(items, value); });
      note(depth, 'was a Set and became a list');
      return same(items, depth);
    }
    const known = settledValues.get(v);
    if (known !== undefined) return same(hasOwn(known, 'ok') ? known.ok : known.error, depth);
    if (isPromise(v)) { note(depth, 'is a promise that was not awaited'); return quote('[Promise]'); }
    const boxed = unbox(v);
    return boxed === undefined ? null : same(boxed, depth);
  };
  return (v) => {
    const text = write(v, 0);
    if (noted > 0) {
      let message = '';
      for (let i = 1; i <= min(noted, 5); i++) message += (i > 1 ? '; ' : '') + notes[i];
      notice('lossy_value', message + (noted > 5 ? '; and ' + (noted - 5) + ' more' : ''));
    }
    if (cut) notice('truncated', 'the value is larger than ' + budget + ' bytes or deeper than ' + DEPTH + ' levels and was cut: return less');
    return text;
  };
};
const ownText = (x, otherwise) => (typeof x === 'string' ? x : otherwise);
const boxes = [uncurry(String.prototype.valueOf), uncurry(Number.prototype.valueOf), uncurry(Boolean.prototype.valueOf),
  uncurry(BigInt.prototype.valueOf)];
const shown = (v) => { // one argument of text() or console
  if (typeof v === 'string') return v;
  if (typeof v === 'object' && v !== null && isError(v)) { const e = describe(v); return e.name + ': ' + e.message; }
  const json = writer(false, limits.value_bytes, '$')(v);
  return json === undefined ? typeof v === 'function' ? '[function]' : '' + (typeof v === 'symbol' ? '[symbol]' : v) : json;
};

