// What a program expects of the web platform besides URL: structuredClone (HTML), TextEncoder and TextDecoder
// (Encoding), atob and btoa (HTML), crypto.randomUUID and crypto.getRandomValues. One expression; `uint32` gives the
// next seeded number and `strings` is the value of strings.js. To be evaluated after url.js.
(define, uint32, strings) => {
  'use strict';
  const { uncurry, charCodeAt, slice, lower, exec, radix, wellFormed, usv, test, replace, need, fromUtf8,
    UNFINISHED } = strings;
  const { apply, defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { freeze, hasOwn, keys: keysOf, prototype: ObjectPrototype, getOwnPropertyNames } = Object, box = Object;
  const { captureStackTrace, isError } = Error, { isArray } = Array, { isView } = ArrayBuffer;
  const { toStringTag } = Symbol, { fromCharCode } = String, { min } = Math;
  const List = Array, Bytes = Uint8Array, Buffer = ArrayBuffer, View = DataView, Dates = Date, Maps = Map, Sets = Set;
  const Pattern = RegExp, Failure = TypeError, Unknown = RangeError;
  const getter = (prototype, name) => uncurry(getOwnPropertyDescriptor(prototype, name).get);
  const Typed = getPrototypeOf(Bytes.prototype);
  const typedName = getter(Typed, toStringTag); // reads an internal slot: undefined for whatever is no typed array
  const typedBuffer = getter(Typed, 'buffer'), typedOffset = getter(Typed, 'byteOffset');
  const typedBytes = getter(Typed, 'byteLength'), typedLength = getter(Typed, 'length');
  const typedAt = uncurry(Typed.at), typedSet = uncurry(Typed.set);
  const viewBuffer = getter(View.prototype, 'buffer'), viewOffset = getter(View.prototype, 'byteOffset');
  const viewBytes = getter(View.prototype, 'byteLength');
  const bufferBytes = getter(Buffer.prototype, 'byteLength'), bufferMax = getter(Buffer.prototype, 'maxByteLength');
  const isResizable = getter(Buffer.prototype, 'resizable'), isDetached = getter(Buffer.prototype, 'detached');
  const resize = uncurry(Buffer.prototype.resize), transfer = uncurry(Buffer.prototype.transfer);
  const mapGet = uncurry(Maps.prototype.get), mapSet = uncurry(Maps.prototype.set), mapHas = uncurry(Maps.prototype.has);
  const mapEach = uncurry(Maps.prototype.forEach), setEach = uncurry(Sets.prototype.forEach);
  const setAdd = uncurry(Sets.prototype.add);
  const fromBase64 = uncurry(Bytes.fromBase64), toBase64 = uncurry(Bytes.prototype.toBase64);
  const tagOf = uncurry(ObjectPrototype.toString);
  const hide = (holder, name, value) => defineProperty(holder, name, {
    __proto__: null, value, writable: true, enumerable: false, configurable: true });

  // Not a global: programs look at `name`, and the list of globals is a reviewed one.
  const CODES = { __proto__: null, InvalidCharacterError: 5, TypeMismatchError: 17, QuotaExceededError: 22, DataCloneError: 25 };
  class DOMException extends Error {
    #name;
    constructor(name, message) {
      super(message);
      this.#name = name;
      hide(this, 'name', name);
      hide(this, 'code', CODES[name]);
    }
    static nameOf(error) { return #name in error ? error.#name : ''; }
  }
  const { nameOf } = DOMException;
  const fail = (name, message, caller) => {
    const error = new DOMException(name, message);
    captureStackTrace(error, caller); // so that its stack begins in the program
    throw error;
  };

  // ---- bytes ---------------------------------------------------------------------------------------------------
  const bytesOf = (source) => { // a Uint8Array on the same memory
    if (!isView(source)) {
      try { return new Bytes(source, 0, bufferBytes(source)); } catch { /* not a buffer, or a detached one */ }
      throw new Failure('decode takes an ArrayBuffer or a typed array, such as a Uint8Array');
    }
    if (typedName(source) === undefined) return new Bytes(viewBuffer(source), viewOffset(source), viewBytes(source));
    return new Bytes(typedBuffer(source), typedOffset(source), typedBytes(source));
  };
  const CHUNK = 8192; // of arguments to one call
  const textOf = (bytes) => { // each byte a character
    const buffer = typedBuffer(bytes), offset = typedOffset(bytes), length = typedLength(bytes);
    let out = '';
    for (let i = 0; i < length; i += CHUNK) {
      out += apply(fromCharCode, undefined, new Bytes(buffer, offset + i, min(CHUNK, length - i)));
    }
    return out;
  };

  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(input = '') {
      const text = usv(input), bytes = new Bytes(text.length * 3), { written } = put(text, bytes);
      const out = new Bytes(written); // memory of its own: `out.buffer` has nothing else
      typedSet(out, new Bytes(typedBuffer(bytes), 0, written));
      return out;
    }
    encodeInto(source, destination) {
      need(arguments.length, 2);
      if (typedName(destination) !== 'Uint8Array') throw new Failure('encodeInto writes into a Uint8Array');
      return put(usv(source), destination);
    }
    get [toStringTag]() { return 'TextEncoder'; }
  }
  const put = (text, bytes) => {
    const room = typedLength(bytes);
    let read = 0, written = 0;
    for (; read < text.length; read++) {
      let c = charCodeAt(text, read);
      if (c < 0x80) {
        if (written === room) break;
        bytes[written++] = c;
        continue;
      }
      const size = c < 0x800 ? 2 : (c & 0xf800) === 0xd800 ? 4 : 3;
      if (written + size > room) break;
      if (size === 4) c = 0x10000 + ((c & 0x3ff) << 10) + (charCodeAt(text, ++read) & 0x3ff);
      bytes[written++] = size === 2 ? 0xc0 | c >> 6 : size === 3 ? 0xe0 | c >> 12 : 0xf0 | c >> 18;
      if (size === 4) bytes[written++] = 0x80 | c >> 12 & 0x3f;
      if (size > 2) bytes[written++] = 0x80 | c >> 6 & 0x3f;
      bytes[written++] = 0x80 | c & 0x3f;
    }
    return { read, written };
  };

  const LABELS = { __proto__: null,
    'utf-8': /^(?:(?:unicode-1-1-)?utf-8|(?:unicode[12][10]|x-unicode20)?utf8)$/,
    'utf-16le': /^(?:csunicode|iso-10646-ucs-2|ucs-2|unicode(?:feff)?|utf-16(?:le)?)$/,
    'utf-16be': /^(?:unicodefffe|utf-16be)$/,
    'windows-1252': /^(?:ansi_x3\.4-1968|(?:us-)?ascii|(?:x-)?cp1252|cp819|csisolatin1|ibm819|iso-?8859-?1|iso-ir-100|iso_8859-1(?::1987)?|l1|latin1|windows-1252)$/,
  };
  const C1 = '\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f'
    + '\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178'; // 0x80 to 0x9f
  // Decoders: bytes as text, and whether these are all of them -> the text, and how many bytes at the end are kept back.
  const decodeUtf8 = (bytes, last, fatal) => {
    const tail = last ? null : exec(UNFINISHED, slice(bytes, -3)), kept = tail === null ? 0 : tail[0].length;
    return { out: fromUtf8(kept === 0 ? bytes : slice(bytes, 0, -kept), fatal), kept };
  };
  const decodeUtf16 = (bytes, last, fatal, high) => { // `high`: 0 or 1, where the high byte of a unit stands
    let out = '', at = 0;
    for (; at + 1 < bytes.length; at += 2) {
      out += fromCharCode(charCodeAt(bytes, at + high) << 8 | charCodeAt(bytes, at + 1 - high));
    }
    const half = out !== '' && test(/[\ud800-\udbff]$/, slice(out, -1)), odd = at < bytes.length;
    if (!last) return { out: utf16(half ? slice(out, 0, -1) : out, fatal), kept: (half ? 2 : 0) + (odd ? 1 : 0) };
    return { out: utf16(odd && !half ? `${out}\udfff` : out, fatal), kept: 0 }; // half a pair and an odd byte: one error
  };
  const utf16 = (text, fatal) => {
    const fine = wellFormed(text);
    if (fatal && fine !== text) throw new Failure('The encoded data was not valid for encoding utf-16');
    return fine;
  };
  const DECODERS = { __proto__: null, 'utf-8': decodeUtf8,
    'utf-16le': (bytes, last, fatal) => decodeUtf16(bytes, last, fatal, 1),
    'utf-16be': (bytes, last, fatal) => decodeUtf16(bytes, last, fatal, 0),
    'windows-1252': (bytes) => ({ out: replace(bytes, /[\x80-\x9f]/g, (c) => C1[charCodeAt(c, 0) - 0x80]), kept: 0 }),
  };
  class TextDecoder {
    #encoding = '';
    #fatal;
    #ignoreBOM;
    #kept = ''; // bytes of an unfinished character
    #begun = false; // whether a byte order mark can no longer come
    #streaming = false;
    constructor(label = 'utf-8', options = undefined) {
      const name = lower(exec(/^[\t\n\f\r ]*([^]*?)[\t\n\f\r ]*$/, `${label}`)[1]);
      for (const encoding in LABELS) if (test(LABELS[encoding], name)) this.#encoding = encoding;
      if (this.#encoding === '') {
        throw new Unknown(`The encoding "${slice(name, 0, 100)}" is not available: use utf-8, utf-16le, utf-16be or windows-1252 (latin1)`);
      }
      this.#fatal = !!options?.fatal;
      this.#ignoreBOM = !!options?.ignoreBOM;
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(input = undefined, options = undefined) {
      if (!this.#streaming) { this.#kept = ''; this.#begun = false; }
      this.#streaming = !!options?.stream;
      const bytes = this.#kept + (input === undefined ? '' : textOf(bytesOf(input)));
      this.#kept = '';
      const { out, kept } = DECODERS[this.#encoding](bytes, !this.#streaming, this.#fatal);
      if (kept > 0) this.#kept = slice(bytes, -kept);
      if (this.#begun || out === '') return out;
      this.#begun = true;
      return out[0] === '\ufeff' && !this.#ignoreBOM ? slice(out, 1) : out;
    }
    get [toStringTag]() { return 'TextDecoder'; }
  }

  const { atob, btoa } = {
    atob(data) {
      need(arguments.length, 1);
      const text = `${data}`;
      let bytes;
      // The engine's loose mode is the web's forgiving one: blanks are skipped, padding is optional but not wrong.
      try { bytes = fromBase64(Bytes, text, LOOSE); } catch { fail('InvalidCharacterError', 'atob: the text is not correctly encoded base64', atob); }
      return textOf(bytes);
    },
    btoa(data) {
      need(arguments.length, 1);
      const text = `${data}`, bytes = new Bytes(text.length);
      for (let i = 0; i < text.length; i++) {
        const c = charCodeAt(text, i);
        if (c > 255) fail('InvalidCharacterError', 'btoa: the text has characters beyond Latin-1; encode it with TextEncoder first', btoa);
        bytes[i] = c;
      }
      return toBase64(bytes, LOOSE);
    },
  };
  const LOOSE = freeze({ __proto__: null, alphabet: 'base64', lastChunkHandling: 'loose' });

  const { randomUUID, getRandomValues } = {
    randomUUID() {
      let text = '';
      for (let i = 0; i < 4; i++) text += slice(radix(0x100000000 + uint32(), 16), 1);
      const variant = '89ab'[+`0x${text[16]}` & 3]; // after the version, which is 4 (RFC 9562)
      return `${slice(text, 0, 8)}-${slice(text, 8, 12)}-4${slice(text, 13, 16)}-${variant}${slice(text, 17, 20)}-${slice(text, 20)}`;
    },
    getRandomValues(array) {
      need(arguments.length, 1);
      if (!isView(array)) throw new Failure('getRandomValues fills a typed array');
      if (!test(/^(?:Int|Uint|Big)/, `${typedName(array)}`)) fail('TypeMismatchError', 'getRandomValues fills integer arrays only', getRandomValues);
      const bytes = bytesOf(array), length = typedLength(bytes);
      if (length > 65536) fail('QuotaExceededError', `getRandomValues gives at most 65536 bytes at once, not ${length}`, getRandomValues);
      for (let i = 0, word = 0; i < length; i++, word >>>= 8) {
        if ((i & 3) === 0) word = uint32();
        bytes[i] = word;
      }
      return array;
    },
  };

  // ---- structuredClone -----------------------------------------------------------------------------------------
  const refuse = (what) => fail('DataCloneError', `structuredClone: ${what} cannot be cloned`, structuredClone);
  const ERRORS = { __proto__: null, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
  // An object's class is what its internal slots say, and asking for a slot that is not there throws, which is slow.
  // So an object is asked only for the slots that go with a prototype it inherits from, and for all if it has neither
  // such a prototype nor properties: a Map whose prototype was exchanged. What has no test is refused by its prototype.
  const kinds = new Maps(), slots = [], KINDS = { __proto__: null }; // filled by the first call: most programs make none
  const G = globalThis, spaces = [Intl, G.Temporal ?? {}];
  const refused = [Promise, WeakMap, WeakSet, Iterator, Symbol, G.DisposableStack, G.AsyncDisposableStack, G.URL,
    G.URLSearchParams, TextEncoder, TextDecoder];
  const arrays = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
    BigInt64Array, BigUint64Array, G.Float16Array, Float32Array, Float64Array];
  const boxes = [[Boolean, uncurry(Boolean.prototype.valueOf)], [Number, uncurry(Number.prototype.valueOf)],
    [String, uncurry(String.prototype.valueOf)]];
  const BigInts = BigInt, bigintOf = uncurry(BigInt.prototype.valueOf);
  const timeOf = uncurry(Dates.prototype.getTime), sourceOf = getter(Pattern.prototype, 'source');
  const mapItems = (v) => { const items = []; mapEach(v, (value, key) => { items[items.length] = [key, value]; }); return items; };
  const cloneMap = (items, v, memory) => {
    const out = keep(memory, v, new Maps());
    for (let i = 0; i < items.length; i++) mapSet(out, clone(items[i][0], memory), clone(items[i][1], memory));
    return out;
  };
  const setItems = (v) => { const items = []; setEach(v, (value) => { items[items.length] = value; }); return items; };
  const cloneSet = (items, v, memory) => {
    const out = keep(memory, v, new Sets());
    for (let i = 0; i < items.length; i++) setAdd(out, clone(items[i], memory));
    return out;
  };
  const bufferLike = (v, size) => {
    if (isDetached(v)) refuse('a detached ArrayBuffer');
    return isResizable(v) ? new Buffer(size, { __proto__: null, maxByteLength: bufferMax(v) }) : new Buffer(size);
  };
  const cloneBuffer = (size, v, memory) => {
    const out = keep(memory, v, bufferLike(v, size));
    typedSet(new Bytes(out), new Bytes(v));
    return out;
  };
  const prepare = () => {
    const refuseAll = (prototype, name) => { if (typeof prototype === 'object') mapSet(kinds, prototype, name); };
    for (let i = 0; i < spaces.length; i++) {
      const names = getOwnPropertyNames(spaces[i]);
      for (let j = 0; j < names.length; j++) refuseAll(spaces[i][names[j]]?.prototype, names[j]);
    }
    for (let i = 0; i < refused.length; i++) refuseAll(refused[i]?.prototype, refused[i]?.name);
    refuseAll(getPrototypeOf(getPrototypeOf((async function* () {}).prototype)), 'AsyncGenerator');
    for (let i = 0; i < arrays.length; i++) if (arrays[i] !== undefined) KINDS[arrays[i].name] = arrays[i];
    slots.length = 0;
    const kind = (Class, read, make) => {
      mapSet(kinds, Class.prototype, { read, make });
      slots[slots.length] = { read, make };
    };
    const boxed = (value, v, memory) => keep(memory, v, box(value));
    for (let i = 0; i < boxes.length; i++) kind(boxes[i][0], boxes[i][1], boxed);
    kind(Dates, timeOf, (time, v, memory) => keep(memory, v, new Dates(time)));
    kind(Pattern, sourceOf, (source, v, memory) => keep(memory, v, new Pattern(v))); // from slots, its flags too
    kind(BigInts, bigintOf, boxed); // from here on `slotOf` counts
    kind(Maps, mapItems, cloneMap);
    kind(Sets, setItems, cloneSet);
    kind(Buffer, bufferBytes, cloneBuffer);
  };

  const keep = (memory, v, made) => { mapSet(memory, v, made); return made; };
  const missed = (e) => { if (getPrototypeOf(e) === Unknown.prototype) throw e; }; // no slot, or the end of the stack?
  const slotOf = (v) => {
    let prototype = getPrototypeOf(v);
    for (; prototype !== null && prototype !== ObjectPrototype; prototype = getPrototypeOf(prototype)) {
      const found = mapGet(kinds, prototype);
      if (typeof found === 'string') refuse(`${test(/^[AEIOU]/, found) ? 'an' : 'a'} ${found}`);
      if (found !== undefined) try { return { make: found.make, data: found.read(v) }; } catch (e) { missed(e); }
    }
    if (keysOf(v).length > 0) return null;
    // With no tag of its own, the text that an object has for its class comes from slots: four kinds have none.
    for (let i = tagOf(v) === '[object Object]' ? slots.length - 4 : 0; i < slots.length; i++) {
      try { return { make: slots[i].make, data: slots[i].read(v) }; } catch (e) { missed(e); }
    }
    return null;
  };
  const tracks = (buffer, offset, length, reach) => { // whether a view grows and shrinks with its buffer: try it
    const size = bufferBytes(buffer), before = length(), more = min(bufferMax(buffer), size + 8); // no element is larger
    if (before === 0 || more === size + 8) { // an empty view can only be seen to grow
      resize(buffer, more);
      const grew = length() !== before;
      resize(buffer, size);
      return grew;
    }
    const saved = new Bytes(size);
    typedSet(saved, new Bytes(buffer));
    resize(buffer, offset);
    let inside = true;
    try { reach(); } catch { inside = false; }
    resize(buffer, size);
    typedSet(new Bytes(buffer), saved);
    return inside;
  };
  const cloneView = (v, memory) => {
    const name = typedName(v), typed = name !== undefined, buffer = typed ? typedBuffer(v) : viewBuffer(v);
    const length = () => (typed ? typedLength(v) : viewBytes(v)), reach = () => (typed ? typedAt(v, 0) : viewBytes(v));
    const copy = clone(buffer, memory);
    try { reach(); } catch { refuse('a view out of the bounds of its buffer'); }
    const offset = typed ? typedOffset(v) : viewOffset(v), Kind = typed ? KINDS[name] : View;
    const free = isResizable(buffer) && tracks(buffer, offset, length, reach);
    return keep(memory, v, free ? new Kind(copy, offset) : new Kind(copy, offset, length()));
  };
  const cloneError = (v, memory) => {
    const name = v.name, message = getOwnPropertyDescriptor(v, 'message'), known = nameOf(v);
    const Kind = typeof name === 'string' && name in ERRORS ? ERRORS[name] : ERRORS.Error;
    const text = message !== undefined && hasOwn(message, 'value') ? `${message.value}` : undefined;
    const out = keep(memory, v, known !== '' ? new DOMException(known, text) : new Kind(text));
    const stack = v.stack;
    hide(out, 'stack', typeof stack === 'string' ? stack : undefined);
    if (hasOwn(v, 'cause')) hide(out, 'cause', clone(v.cause, memory));
    return out;
  };
  const clone = (v, memory) => {
    if (typeof v === 'function' || typeof v === 'symbol') refuse(`a ${typeof v}`);
    if (typeof v !== 'object' || v === null) return v;
    if (mapHas(memory, v)) return mapGet(memory, v);
    if (isView(v)) return cloneView(v, memory);
    if (isError(v)) return cloneError(v, memory);
    const list = isArray(v), slot = list ? null : slotOf(v);
    if (!list && tagOf(v) === '[object Arguments]' && !(toStringTag in v)) refuse('an arguments object');
    if (slot !== null) return slot.make(slot.data, v, memory);
    const out = keep(memory, v, list ? new List(v.length) : {}), names = keysOf(v);
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (!hasOwn(v, name)) continue; // a getter took it away
      const value = clone(v[name], memory);
      if (!(name in out)) out[name] = value;
      else defineProperty(out, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
    }
    return out;
  };
  const { structuredClone } = {
    structuredClone(value, options = undefined) {
      need(arguments.length, 1);
      if (options !== undefined && options !== null && typeof options !== 'object' && typeof options !== 'function') {
        throw new Failure('structuredClone: the options must be an object, such as { transfer: [buffer] }');
      }
      if (slots.length < 9) prepare(); // again if the stack ended while it ran
      const memory = new Maps(), moved = [], list = options?.transfer;
      if (list !== undefined) {
        for (const buffer of list) {
          try { bufferBytes(buffer); } catch { refuse('what is no ArrayBuffer, but in the transfer list,'); }
          if (mapHas(memory, buffer)) refuse('an ArrayBuffer that is twice in the transfer list');
          keep(memory, buffer, bufferLike(buffer, bufferBytes(buffer)));
          moved[moved.length] = buffer;
        }
      }
      const out = clone(value, memory);
      for (let i = 0; i < moved.length; i++) { // only now, when nothing can fail any more
        const made = mapGet(memory, moved[i]);
        if (isDetached(moved[i])) refuse('a detached ArrayBuffer');
        const bytes = transfer(moved[i]);
        typedSet(new Bytes(made), new Bytes(bytes, 0, min(bufferBytes(bytes), bufferBytes(made))));
      }
      return out;
    },
  };

  define('structuredClone', structuredClone);
  define('TextEncoder', TextEncoder);
  define('TextDecoder', TextDecoder);
  define('atob', atob);
  define('btoa', btoa);
  const crypto = { randomUUID, getRandomValues };
  hide(crypto, toStringTag, 'Crypto');
  define('crypto', freeze(crypto));
}
