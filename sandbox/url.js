// URL and URLSearchParams of the URL Standard (url.spec.whatwg.org), for a realm that has V8 and nothing else.
//
// One expression: (define) => {...}; evaluate it before web.js, whose structuredClone refuses what is defined here.
// What runs after program text uses captured intrinsics and iterates over no array of its own, so a program that
// patches a prototype breaks itself and not this. Differences from the standard, all in host names (IDNA): mapping
// is lower case + NFKC instead of the table of UTS #46, and neither bidi, joiners nor given "xn--" labels are checked.
(define) => {
  'use strict';
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const string = String.prototype;
  const charCodeAt = uncurry(string.charCodeAt), codePointAt = uncurry(string.codePointAt);
  const indexOf = uncurry(string.indexOf), lastIndexOf = uncurry(string.lastIndexOf);
  const slice = uncurry(string.slice), split = uncurry(string.split), lower = uncurry(string.toLowerCase);
  const normalize = uncurry(string.normalize), wellFormed = uncurry(string.toWellFormed);
  const exec = uncurry(RegExp.prototype.exec), radix = uncurry(Number.prototype.toString);
  const sort = uncurry(Array.prototype.sort);
  const { iterator, toStringTag } = Symbol;
  const { defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const { captureStackTrace } = Error, { floor } = Math;
  const fromCodePoint = String.fromCodePoint, Failure = TypeError;
  const encodeText = encodeURIComponent, decodeText = decodeURIComponent, toBytes = unescape, fromBytes = escape;

  // ---- text --------------------------------------------------------------------------------------------------
  const usv = (value) => wellFormed(`${value}`);
  const test = (pattern, text) => exec(pattern, text) !== null;
  const replace = (text, pattern, by) => { // a global pattern that matches no empty text
    let out = '', at = 0, match;
    pattern.lastIndex = 0;
    while ((match = exec(pattern, text)) !== null) {
      out += slice(text, at, match.index) + by(match[0], match[1]);
      at = pattern.lastIndex;
    }
    return at === 0 ? text : out + slice(text, at);
  };
  const need = (given, wanted) => {
    if (given < wanted) throw new Failure(`${wanted} argument${wanted > 1 ? 's' : ''} required, but only ${given} present`);
  };

  // The percent-encode sets of the standard, each as runs of what it encodes.
  const C0 = /[\0-\x1f\x7f-\uffff]+/g;
  const FRAGMENT = /[\0-\x20"<>`\x7f-\uffff]+/g;
  const QUERY = /[\0-\x20"#<>\x7f-\uffff]+/g;
  const SPECIAL_QUERY = /[\0-\x20"#<>'\x7f-\uffff]+/g;
  const PATH = /[\0-\x20"#<>?^`{}\x7f-\uffff]+/g;
  const USERINFO = /[\0-\x20"#<>?^`{}/:;=@[\\\]|\x7f-\uffff]+/g;
  const FORM = /[^*\-.\w]+/g;
  const KEPT = /[!'()~]/g; // encodeURIComponent keeps these (and * - . _, which no set holds)
  const encodeKept = (c) => (c === '~' ? '%7E' : `%2${radix(charCodeAt(c, 0) & 15, 16)}`);
  const encodeRun = (run) => replace(encodeText(run), KEPT, encodeKept);
  const encode = (text, set) => replace(text, set, encodeRun);

  // A maximal part of ill-formed UTF-8 in a text of bytes; group 1 is a well-formed sequence, to be stepped over.
  const SEQUENCE = /([\xc2-\xdf][\x80-\xbf]|(?:\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf])[\x80-\xbf]|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]{2})|\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf]|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]?|[\x80-\xff]/g;
  const decode = (text) => {
    if (indexOf(text, '%') < 0) return text;
    const clean = replace(text, /%(?![\da-f]{2})/gi, () => '%25');
    try { return decodeText(clean); } catch { /* ill-formed UTF-8 */ }
    const bytes = toBytes(replace(clean, /[^\0-\x7f]+/g, encodeText));
    return decodeText(fromBytes(replace(bytes, SEQUENCE, (part, whole) => whole ?? '\xef\xbf\xbd')));
  };

  // ---- hosts: a serialised host, or null for failure -----------------------------------------------------------
  const punycode = (label) => { // RFC 3492, section 6.3
    const points = [];
    let out = '';
    for (let i = 0; i < label.length; i++) {
      const point = codePointAt(label, i);
      if (point > 0xffff) i++;
      if (point < 128) out += label[i];
      points[points.length] = point;
    }
    const basic = out.length;
    if (basic > 0) out += '-';
    const digit = (d) => 'abcdefghijklmnopqrstuvwxyz0123456789'[d];
    for (let n = 128, delta = 0, bias = 72, done = basic; done < points.length; n++, delta++) {
      let next = Infinity;
      for (let i = 0; i < points.length; i++) if (points[i] >= n && points[i] < next) next = points[i];
      delta += (next - n) * (done + 1);
      n = next;
      for (let i = 0; i < points.length; i++) {
        if (points[i] < n) delta++;
        if (points[i] !== n) continue;
        let rest = delta;
        for (let k = 36; ; k += 36) {
          const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
          if (rest < t) break;
          out += digit(t + (rest - t) % (36 - t));
          rest = floor((rest - t) / (36 - t));
        }
        out += digit(rest);
        delta = floor(delta / (done === basic ? 700 : 2));
        delta += floor(delta / ++done);
        for (bias = 0; delta > 455; bias += 36) delta = floor(delta / 35);
        bias += floor(36 * delta / (delta + 38));
        delta = 0;
      }
    }
    return out;
  };

  const fold = (text) => { // letter by letter: a final capital sigma is an ordinary one in a host name
    let out = '';
    for (let i = 0; i < text.length;) {
      const letter = fromCodePoint(codePointAt(text, i));
      i += letter.length;
      out += lower(letter);
    }
    return normalize(out, 'NFKC');
  };
  const toAscii = (domain) => {
    if (!test(/[^\0-\x7f]/, domain)) return lower(domain);
    // Folded twice: compatibility forms of capitals become capitals first. What the table ignores goes in between.
    const ignored = /[\xad\u034f\u180b-\u180f\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]|\udb40[\udd00-\uddef]/g;
    const folded = fold(replace(fold(domain), ignored, () => ''));
    const labels = split(replace(folded, /\u3002/g, () => '.'), '.');
    let out = '';
    for (let i = 0; i < labels.length; i++) {
      const label = labels[i], ascii = !test(/[^\0-\x7f]/, label);
      // Unassigned, private and invisible characters and a leading combining mark are invalid in every table.
      if (!ascii && test(/^xn--|^\p{M}|[[\p{C}\p{Z}\ufffc\ufffd]--[\u200c\u200d]]/v, label)) return null;
      out += (i > 0 ? '.' : '') + (ascii ? label : `xn--${punycode(label)}`);
    }
    return out;
  };

  const ipv4 = (domain) => { // a domain that does not end in a number is returned as it is
    const parts = split(domain, '.');
    const count = parts.length > 1 && parts[parts.length - 1] === '' ? parts.length - 1 : parts.length;
    if (!test(/^(?:\d+|0x[\da-f]*)$/, parts[count - 1])) return domain;
    if (count > 4) return null;
    let address = 0;
    for (let i = 0; i < count; i++) {
      const part = parts[i], size = i < count - 1 ? 256 : 256 ** (5 - count);
      const number = part === '0x' ? 0 : test(/^(?:0x[\da-f]+|0|[1-9]\d*)$/, part) ? +part
        : test(/^0[0-7]+$/, part) ? +`0o${part}` : NaN;
      if (!(number < size)) return null;
      address = address * size + number;
    }
    return `${address >>> 24}.${address >>> 16 & 255}.${address >>> 8 & 255}.${address & 255}`;
  };

  const OCTETS = /^(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])\.(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])\.(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])\.(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])$/;
  const ipv6 = (text) => {
    const halves = split(text, '::'), words = [];
    if (halves.length > 2) return null;
    let gap = 8; // where "::" stands
    for (let h = 0; h < halves.length; h++) {
      if (h === 1) gap = words.length;
      const pieces = halves[h] === '' ? [] : split(halves[h], ':');
      for (let i = 0; i < pieces.length; i++) {
        const quad = h === halves.length - 1 && i === pieces.length - 1 ? exec(OCTETS, pieces[i]) : null;
        if (quad !== null) {
          words[words.length] = quad[1] * 256 + +quad[2];
          words[words.length] = quad[3] * 256 + +quad[4];
        } else if (test(/^[\da-f]{1,4}$/i, pieces[i])) words[words.length] = +`0x${pieces[i]}`;
        else return null;
      }
    }
    const missing = 8 - words.length;
    if (gap === 8 && halves.length === 1 ? missing !== 0 : missing < 1) return null;
    const word = (i) => (i < gap ? words[i] : i < gap + missing ? 0 : words[i - missing]);
    let from = -1, longest = 1; // the first longest run of two zeros or more is left out
    for (let i = 0; i < 8; i++) {
      let end = i;
      while (end < 8 && word(end) === 0) end++;
      if (end - i > longest) { from = i; longest = end - i; }
    }
    let out = '';
    for (let i = 0; i < 8; i++) {
      if (i === from) { out += i === 0 ? '::' : ':'; i += longest - 1; }
      else out += radix(word(i), 16) + (i < 7 ? ':' : '');
    }
    return out;
  };

  const parseHost = (text, special) => {
    if (text[0] === '[') {
      const address = text[text.length - 1] === ']' ? ipv6(slice(text, 1, -1)) : null;
      return address === null ? null : `[${address}]`;
    }
    if (!special) return test(/[\0\t\n\r #/:<>?@[\\\]^|]/, text) ? null : encode(text, C0);
    const domain = toAscii(decode(text));
    return domain === null || domain === '' || test(/[\0-\x20#%/:<>?@[\\\]^|\x7f]/, domain) ? null : ipv4(domain);
  };

  // ---- the parser ----------------------------------------------------------------------------------------------
  // The standard's state machine, component by component: "#" and "?" end whatever they stand in, so fragment and
  // query are cut off first, and the setters call the same parts. These answer false for failure.
  const PORTS = { __proto__: null, 'http:': 80, 'https:': 443, 'ws:': 80, 'wss:': 443, 'ftp:': 21, 'file:': null };
  const isSpecial = (u) => u.protocol in PORTS;
  const isSlash = (u, c) => c === '/' || (c === '\\' && isSpecial(u));
  const isOpaque = (u) => typeof u.path === 'string';
  const untab = (text) => replace(text, /[\t\n\r]+/g, () => '');
  const startsWithDrive = (text) => test(/^[a-z][:|](?:[/\\]|$)/i, text);
  const slashAt = (u, text) => exec(isSpecial(u) ? /[/\\]|$/ : /\/|$/, text).index;
  const hasNoHost = (u) => u.host === null || u.host === '' || u.protocol === 'file:';

  const shorten = (u) => {
    const { path } = u;
    if (u.protocol === 'file:' && path.length === 1 && test(/^[a-z]:$/i, path[0])) return;
    if (path.length > 0) path.length--;
  };
  const inherit = (u, base, text) => { // the base's path without its last segment, or all of it for an empty reference
    u.path = [];
    for (let i = 0; i < base.path.length; i++) u.path[i] = base.path[i];
    if (text === '') u.query = base.query;
    else if (u.protocol === 'file:' && startsWithDrive(text)) u.path = [];
    else shorten(u);
    if (text !== '') parsePath(u, text);
    return true;
  };
  const parsePath = (u, text) => { // what follows the first slash
    const { path } = u;
    text = encode(text, PATH);
    for (let last = false; !last;) {
      const end = slashAt(u, text);
      let segment = slice(text, 0, end);
      last = end === text.length;
      text = slice(text, end + 1);
      if (test(/^(?:\.|%2e){2}$/i, segment)) {
        shorten(u);
        if (last) path[path.length] = '';
      } else if (test(/^(?:\.|%2e)$/i, segment)) {
        if (last) path[path.length] = '';
      } else {
        if (u.protocol === 'file:' && path.length === 0 && test(/^[a-z]\|$/i, segment)) segment = `${segment[0]}:`;
        path[path.length] = segment;
      }
    }
    return true;
  };
  const startPath = (u, text) => // what follows a host
    text === '' && !isSpecial(u) ? true : parsePath(u, isSlash(u, text[0]) ? slice(text, 1) : text);

  const setPort = (u, digits) => {
    if (digits === '') return true;
    if (+digits > 65535) return false;
    u.port = +digits === PORTS[u.protocol] ? null : +digits;
    return true;
  };
  const colonAt = (text) => { // the one that ends a host; those in brackets belong to it
    let inside = false;
    for (let i = 0; i < text.length; i++) {
      if (text[i] === '[') inside = true;
      else if (text[i] === ']') inside = false;
      else if (text[i] === ':' && !inside) return i;
    }
    return -1;
  };
  const setHost = (u, text) => {
    const host = text === '' && isSpecial(u) ? null : parseHost(text, isSpecial(u));
    if (host === null) return false;
    u.host = host;
    return true;
  };
  const setFileHost = (u, text) => {
    if (text !== '' && !setHost(u, text)) return false;
    if (text === '' || u.host === 'localhost') u.host = '';
    return true;
  };

  const parseAuthority = (u, text) => {
    if (isSpecial(u)) text = slice(text, exec(/^[/\\]*/, text)[0].length);
    const end = slashAt(u, text);
    let authority = slice(text, 0, end);
    const at = lastIndexOf(authority, '@');
    if (at >= 0) {
      const colon = indexOf(authority, ':'), named = colon >= 0 && colon < at;
      u.username = encode(slice(authority, 0, named ? colon : at), USERINFO);
      if (named) u.password = encode(slice(authority, colon + 1, at), USERINFO);
      authority = slice(authority, at + 1);
      if (authority === '') return false;
    }
    const colon = colonAt(authority), port = colon < 0 ? '' : slice(authority, colon + 1);
    if (colon === 0 || !test(/^\d*$/, port)) return false;
    return setHost(u, colon < 0 ? authority : slice(authority, 0, colon)) && setPort(u, port)
      && startPath(u, slice(text, end));
  };
  const parseRelative = (u, text, base) => {
    if (isSlash(u, text[0]) && isSlash(u, text[1])) return parseAuthority(u, slice(text, 2));
    u.username = base.username;
    u.password = base.password;
    u.host = base.host;
    u.port = base.port;
    return isSlash(u, text[0]) ? parsePath(u, slice(text, 1)) : inherit(u, base, text);
  };
  const parseFile = (u, text, base) => {
    u.host = '';
    if (isSlash(u, text[0]) && isSlash(u, text[1])) {
      text = slice(text, 2);
      const end = slashAt(u, text), host = slice(text, 0, end);
      if (test(/^[a-z][:|]$/i, host)) return parsePath(u, text); // file://c:/ has a drive, not a host
      return setFileHost(u, host) && startPath(u, slice(text, end));
    }
    if (base !== null) u.host = base.host;
    if (!isSlash(u, text[0])) return base === null ? parsePath(u, text) : inherit(u, base, text);
    text = slice(text, 1);
    if (base !== null && !startsWithDrive(text) && base.path.length > 0 && test(/^[a-z]:$/i, base.path[0])) {
      u.path[0] = base.path[0];
    }
    return parsePath(u, text);
  };

  const setQuery = (u, text) => { u.query = encode(text, isSpecial(u) ? SPECIAL_QUERY : QUERY); };
  const parse = (input, base) => { // a record, or null
    let from = 0, to = input.length;
    while (from < to && charCodeAt(input, from) <= 32) from++;
    while (from < to && charCodeAt(input, to - 1) <= 32) to--;
    let text = untab(slice(input, from, to)), query = null;
    const u = { protocol: '', username: '', password: '', host: null, port: null, path: [], query: null, fragment: null };
    const hash = indexOf(text, '#');
    if (hash >= 0) { u.fragment = encode(slice(text, hash + 1), FRAGMENT); text = slice(text, 0, hash); }
    const mark = indexOf(text, '?');
    if (mark >= 0) { query = slice(text, mark + 1); text = slice(text, 0, mark); }

    const scheme = exec(/^[a-z][a-z\d+.-]*:/i, text);
    let fine = true;
    if (scheme !== null) {
      u.protocol = lower(scheme[0]);
      text = slice(text, scheme[0].length);
      const same = base !== null && base.protocol === u.protocol ? base : null;
      if (u.protocol === 'file:') fine = parseFile(u, text, same);
      else if (isSpecial(u)) {
        fine = same !== null && !test(/^\/\//, text) ? parseRelative(u, text, same) : parseAuthority(u, text);
      } else if (text[0] === '/') {
        fine = text[1] === '/' ? parseAuthority(u, slice(text, 2)) : parsePath(u, slice(text, 1));
      } else {
        // A space before "?" or "#" would be lost as a trailing one if those were taken away.
        if (hash + mark > -2 && text[text.length - 1] === ' ') text = `${slice(text, 0, -1)}%20`;
        u.path = encode(text, C0);
      }
    } else {
      if (base === null) return null;
      u.protocol = base.protocol;
      if (isOpaque(base)) {
        if (text !== '' || query !== null || hash < 0) return null;
        u.path = base.path;
        u.query = base.query;
      } else fine = u.protocol === 'file:' ? parseFile(u, text, base) : parseRelative(u, text, base);
    }
    if (query !== null) setQuery(u, query);
    return fine ? u : null;
  };
  const resolve = (url, base) => {
    url = usv(url);
    const root = base === undefined ? null : parse(usv(base), null);
    return base !== undefined && root === null ? null : parse(url, root);
  };

  const hostOf = (u) => (u.host === null ? '' : u.port === null ? u.host : `${u.host}:${u.port}`);
  const pathOf = (u) => {
    if (isOpaque(u)) return u.path;
    let out = '';
    for (let i = 0; i < u.path.length; i++) out += `/${u.path[i]}`;
    return out;
  };
  const hrefOf = (u) => {
    let out = u.protocol;
    if (u.host !== null) {
      const password = u.password === '' ? '' : `:${u.password}`;
      out += `//${u.username}${password}${u.username + password === '' ? '' : '@'}${hostOf(u)}`;
    } else if (!isOpaque(u) && u.path.length > 1 && u.path[0] === '') out += '/.'; // or the path would read as a host
    return out + pathOf(u) + (u.query === null ? '' : `?${u.query}`) + (u.fragment === null ? '' : `#${u.fragment}`);
  };

  // ---- application/x-www-form-urlencoded: lists of [name, value] -----------------------------------------------
  const parseForm = (text) => {
    const list = [], parts = split(replace(text, /\+/g, () => ' '), '&');
    for (let i = 0; i < parts.length; i++) {
      if (parts[i] === '') continue;
      const equals = indexOf(parts[i], '=');
      list[list.length] = equals < 0 ? [decode(parts[i]), '']
        : [decode(slice(parts[i], 0, equals)), decode(slice(parts[i], equals + 1))];
    }
    return list;
  };
  const encodeForm = (text) => replace(encode(text, FORM), /%20/g, () => '+');
  const serialiseForm = (list) => {
    let out = '';
    for (let i = 0; i < list.length; i++) {
      out += `${i > 0 ? '&' : ''}${encodeForm(list[i][0])}=${encodeForm(list[i][1])}`;
    }
    return out;
  };
