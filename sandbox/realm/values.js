// Part 3 of the realm: what leaves it, as JSON text.

const limits = { __proto__: null, argument_bytes: 0, value_bytes: 0, log_bytes: 0, frame_bytes: 0 };
let entries = create(null), first = 0, count = 0, droppedLogs = 0, fault = '';
const push = (kind, text) => { entries[count++] = { __proto__: null, kind, text }; };
const quote = (text) => stringify(wellFormed(text)); // of a primitive string: asks nothing of the program
const utf8 = (text) => {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = charCodeAt(text, i);
    if (unit > 127) bytes += unit < 2048 || (unit >= 0xD800 && unit < 0xE000) ? 1 : 2;
  }
  return bytes;
};
const notice = (code, message, line) => push('warnings',
  '{"code":' + quote(code) + ',"message":' + quote(message) + (line ? ',"line":' + line : '') + '}');

// ---- positions: lines of the text that the model sent -----------------------------------------------------------
let lineOffset = 0, shifts = [], awaits = '';
const number = (text, from) => {
  let value = 0, i = from;
  for (let digit; i < text.length && (digit = charCodeAt(text, i) - 48) >= 0 && digit <= 9; i++) value = value * 10 + digit;
  return { __proto__: null, value, end: i };
};
const nowhere = { __proto__: null, line: 0, column: 0 };
const position = (stack) => { // the first frame in the program's own text
  const found = indexOf(stack, 'program:');
  if (found < 0) return nowhere;
  const line = number(stack, found + 8), column = number(stack, line.end + 1);
  let at = column.value;
  for (let i = 0; i < shifts.length; i++) {
    if (shifts[i][0] === line.value && column.value >= shifts[i][1]) at = column.value - shifts[i][2];
  }
  return { __proto__: null, line: max(0, line.value - lineOffset), column: max(1, at) };
};
const here = () => { const stack = new E().stack; return typeof stack === 'string' ? position(stack) : nowhere; };

const DEPTH = 200; // readers on the way (parsers with a recursion limit) must manage it
const settledValues = privateMap(); // promise -> {ok} or {error}
const errors = privateMap(); // ToolError -> {call, tool, code, line, column}
const isPromise = (x) => { // then() throws on anything else before it asks the program
  try { then(x, undefined, () => {}); return true; } catch { return false; }
};
const has = (brand, x) => { try { return brand(x) !== undefined; } catch { return false; } };
const briefly = (e) => { // what a thrown value says; never throws
  try {
    if (typeof e === 'object' && e !== null) { const m = e.message; return typeof m === 'string' ? slice(m, 0, 200) : 'an object'; }
    return typeof e === 'symbol' ? 'a symbol' : slice('' + e, 0, 200);
  } catch { return 'something unprintable'; }
};
// Writes one value. Strict: arguments, where what JSON cannot say is refused. Lenient: values, where it is converted
// and noted, and what is over the budget is cut so that the rest stays valid JSON.
const writer = (strict, budget) => {
  const ancestors = create(null), notes = create(null);
  let left = budget, cut = false, noted = 0;
  const note = (path, what) => { if (noted++ < 5) notes[noted] = path + ' ' + what; };
  const spend = (bytes) => {
    left -= bytes;
    if (left < 0) {
      if (strict) throw new RE('the arguments are larger than ' + budget + ' bytes (argument_bytes): send less, or a reference');
      cut = true;
    }
  };
  const string = (text, path) => {
    if (text.length > left && !strict) { // cut before quoting: a long string may not fit into memory twice
      cut = true;
      const kept = max(0, min(text.length, floor(left / 3)));
      text = slice(text, 0, kept) + '... ' + (text.length - kept) + ' more characters';
    } else if (strict) spend(text.length);
    const quoted = quote(text);
    spend(strict ? utf8(quoted) - text.length : utf8(quoted));
    return quoted;
  };
  const thrown = (e, path) => {
    if (strict) throw e;
    note(path, 'throws');
    return quote('[Throws: ' + briefly(e) + ']');
  };
  const write = (v, path, depth) => {
    switch (typeof v) {
      case 'string': return string(v, path);
      case 'boolean': spend(5); return v ? 'true' : 'false';
      case 'number': {
        if (isFinite(v)) { const text = '' + v; spend(text.length + 1); return text === '-0' ? '0' : text; }
        if (strict) throw new TE(path + ' is ' + v + ', which JSON cannot say: send a finite number or null');
        spend(5); note(path, 'was ' + v + ' and became null');
        return 'null';
      }
      case 'bigint':
        if (strict) throw new TE(path + ' is a BigInt, which JSON cannot say: send String(value) or Number(value)');
        note(path, 'was a BigInt and became a string');
        return string(bigintText(v), path);
      case 'undefined': return undefined;
      case 'object': break;
      default:
        if (!strict) note(path, 'is a ' + typeof v + ' and was dropped');
        return undefined;
    }
    if (v === null) { spend(5); return 'null'; }
    if (depth > DEPTH) {
      if (strict) throw new RE(path + ' is nested more than ' + DEPTH + ' levels deep');
      cut = true;
      return quote('... deeper than ' + DEPTH + ' levels');
    }
    for (let i = 0; i < depth; i++) {
      if (ancestors[i] !== v) continue;
      if (strict) throw new TE(path + ' refers back to an object that contains it, which JSON cannot say');
      note(path, 'refers back to an object that contains it');
      return quote('[Circular]');
    }
    ancestors[depth] = v;
    try { return object(v, path, depth); } catch (e) { return thrown(e, path); }
  };
  const object = (v, path, depth) => {
    let proto = getPrototypeOf(v);
    if (!strict && proto !== ObjectPrototype && proto !== null && !isArray(v)) {
      const special = unusual(v, path, depth);
      if (special !== null) return special;
    }
    const convert = v.toJSON;
    if (typeof convert === 'function') {
      const made = apply(convert, v, ['']);
      if (typeof made !== 'object' || made === null) return write(made, path, depth + 1);
      v = made;
    }
    if (isRawJSON !== undefined && isRawJSON(v)) { const raw = stringify(v); spend(utf8(raw)); return raw; }
    if (strict) { // boxed primitives, as JSON.stringify has them
      const boxed = unbox(v);
      if (boxed !== undefined) return write(boxed, path, depth + 1);
    }
    if (isArray(v)) return list(v, v.length, path, depth);
    const names = keys(v);
    let text = '{', sep = '';
    for (let i = 0; i < names.length; i++) {
      const name = names[i], at = path + '.' + slice(name, 0, 40);
      if (cut) { text += sep + quote('...') + ':' + quote((names.length - i) + ' more keys'); break; }
      let member;
      try { member = write(v[name], at, depth + 1); } catch (e) { member = thrown(e, at); }
      if (member === undefined) continue;
      spend(2);
      text += sep + string(name, at) + ':' + member;
      sep = ',';
    }
    return text + '}';
  };
  const list = (v, length, path, depth) => {
    let text = '[';
    for (let i = 0; i < length; i++) {
      if (cut) { text += (i ? ',' : '') + quote('... ' + (length - i) + ' more items'); break; }
      const at = path + '[' + i + ']';
      let item;
      try { item = write(v[i], at, depth + 1); } catch (e) { item = thrown(e, at); }
      spend(1);
      text += (i ? ',' : '') + (item === undefined ? 'null' : item);
    }
    return text + ']';
  };
  const unbox = (v) => {
    for (let i = 0; i < boxes.length; i++) { try { return boxes[i](v); } catch { /* not one of these */ } }
    return undefined;
  };
  const unusual = (v, path, depth) => { // null: nothing special about it
    if (isError(v)) return write({ __proto__: null, name: ownText(v.name, 'Error'), message: ownText(v.message, '') }, path, depth + 1);
    const tag = typedTag(v);
    if (tag !== undefined) return list(v, typedLength(v), path, depth);
    if (has(mapSize, v)) {
      const plain = create(null), pairs = [];
      let named = true;
      mapEach(v, (value, key) => {
        if (typeof key === 'string') plain[key] = value; else named = false;
        defineProperty(pairs, pairs.length, { __proto__: null, value: [key, value], writable: true, enumerable: true, configurable: true });
      });
      note(path, named ? 'was a Map and became an object' : 'was a Map and became a list of entries');
      return named ? write(plain, path, depth + 1) : write(pairs, path, depth + 1);
    }
    if (has(setSize, v)) {
      const items = [];
      setEach(v, (value) => { defineProperty(items, items.length, { __proto__: null, value, writable: true, enumerable: true, configurable: true }); });
      note(path, 'was a Set and became a list');
      return write(items, path, depth + 1);
    }
    const known = settledValues.get(v);
    if (known !== undefined) return write(hasOwn(known, 'ok') ? known.ok : known.error, path, depth + 1);
    if (isPromise(v)) { note(path, 'is a promise that was not awaited'); return quote('[Promise]'); }
    const boxed = unbox(v);
    return boxed === undefined ? null : write(boxed, path, depth + 1);
  };
  const done = (v, root) => {
    const text = write(v, root, 0);
    if (noted > 0) {
      let message = '';
      for (let i = 1; i <= min(noted, 5); i++) message += (i > 1 ? '; ' : '') + notes[i];
      notice('lossy_value', message + (noted > 5 ? '; and ' + (noted - 5) + ' more' : ''));
    }
    if (cut) notice('truncated', 'the value is larger than ' + budget + ' bytes or deeper than ' + DEPTH + ' levels and was cut: return less');
    return text;
  };
  return done;
};
const ownText = (x, otherwise) => (typeof x === 'string' ? x : otherwise);
const boxes = [uncurry(String.prototype.valueOf), uncurry(Number.prototype.valueOf), uncurry(Boolean.prototype.valueOf),
  uncurry(BigInt.prototype.valueOf)];
const shown = (v) => { // one argument of text() or console
  if (typeof v === 'string') return v;
  if (typeof v === 'object' && v !== null && isError(v)) { const e = describe(v); return e.name + ': ' + e.message; }
  const json = writer(false, limits.value_bytes)(v, '$');
  return json === undefined ? typeof v === 'function' ? '[function]' : '' + (typeof v === 'symbol' ? '[symbol]' : v) : json;
};

