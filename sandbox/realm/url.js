// URL and URLSearchParams of the URL Standard (url.spec.whatwg.org). One expression; `strings` is the value of
// strings.js, which also says what host names are not checked for. To be evaluated before web.js, whose
// structuredClone refuses the classes that it finds. Members are not enumerable, unlike a browser's.
(define, uint32, strings) => {
  'use strict';
  const { uncurry, charCodeAt, indexOf, slice, split, lower, exec, usv, test, replace, need, encode, C0, FRAGMENT,
    QUERY, SPECIAL_QUERY, PATH, USERINFO, parseForm, serialiseForm, colonAt, parseHost } = strings;
  const lastIndexOf = uncurry(String.prototype.lastIndexOf), sort = uncurry(Array.prototype.sort);
  const { iterator } = Symbol, { apply, defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const { captureStackTrace } = Error, { stringify } = JSON, Failure = TypeError;

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
  const pathAfter = (u, text) => // what follows a host
    text === '' && !isSpecial(u) ? true : parsePath(u, isSlash(u, text[0]) ? slice(text, 1) : text);

  const setPort = (u, digits) => {
    if (digits === '') return true;
    if (+digits > 65535) return false;
    u.port = +digits === PORTS[u.protocol] ? null : +digits;
    return true;
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
      && pathAfter(u, slice(text, end));
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
      return setFileHost(u, host) && pathAfter(u, slice(text, end));
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
  const resolve = (given, url, base) => {
    need(given, 1);
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

  const originOf = (u) => {
    if (u.protocol === 'blob:') {
      const inner = parse(pathOf(u), null);
      return inner !== null && test(/^https?:$/, inner.protocol) ? originOf(inner) : 'null';
    }
    return isSpecial(u) && u.protocol !== 'file:' ? `${u.protocol}//${hostOf(u)}` : 'null';
  };
  const setCredential = (u, name, text) => { if (!hasNoHost(u)) u[name] = encode(text, USERINFO); };
  const changeHost = (u, text, withPort) => {
    if (isOpaque(u)) return;
    text = untab(text);
    text = slice(text, 0, exec(isSpecial(u) ? /[/\\?#]|$/ : /[/?#]|$/, text).index);
    if (u.protocol === 'file:') { setFileHost(u, text); return; }
    const colon = colonAt(text);
    if (colon === 0 || (colon > 0 && !withPort)) return;
    if (text === '' && (u.username !== '' || u.password !== '' || u.port !== null)) return;
    if (setHost(u, colon < 0 ? text : slice(text, 0, colon)) && colon > 0) {
      setPort(u, exec(/^\d*/, slice(text, colon + 1))[0]);
    }
  };

  // ---- the classes ---------------------------------------------------------------------------------------------
  let link; // a URLSearchParams that tells its URL of changes, or the next list of one
  const walk = function* (listOf, pick) { // live: the list may change, or be another one, between two steps
    for (let i = 0; i < listOf().length; i++) yield pick(listOf()[i]);
  };
  const matcher = (given, name, value) => {
    need(given, 1);
    name = usv(name);
    if (value !== undefined) value = usv(value);
    return (pair) => pair[0] === name && (value === undefined || pair[1] === value);
  };
  const isObject = (value) => (typeof value === 'object' && value !== null) || typeof value === 'function';
  class URLSearchParams {
    #list = [];
    #changed = null;
    static {
      link = (params, list, changed) => {
        params ??= new URLSearchParams();
        params.#list = list;
        params.#changed ??= changed;
        return params;
      };
    }
    constructor(init = '') {
      if (!isObject(init)) {
        const text = usv(init);
        this.#list = parseForm(text[0] === '?' ? slice(text, 1) : text);
        return;
      }
      const list = this.#list, method = init[iterator];
      if (method !== undefined && method !== null) {
        for (const pair of { __proto__: null, [iterator]: () => apply(method, init, []) }) {
          const items = [];
          if (!isObject(pair)) throw new Failure('Each pair must be iterable');
          for (const item of pair) items[items.length] = usv(item);
          if (items.length !== 2) throw new Failure('Each pair must have a name and a value');
          list[list.length] = items;
        }
        return;
      }
      const names = ownKeys(init), at = { __proto__: null };
      for (let i = 0; i < names.length; i++) {
        if (!getOwnPropertyDescriptor(init, names[i])?.enumerable) continue;
        const name = usv(names[i]), value = usv(init[names[i]]); // two names can become one by the repair of surrogates
        at[name] ??= list.length;
        list[at[name]] = [name, value];
      }
    }
    #update(list) {
      this.#list = list;
      this.#changed?.(serialiseForm(list));
    }
    #where(keep) {
      const list = this.#list, kept = [];
      for (let i = 0; i < list.length; i++) if (keep(list[i])) kept[kept.length] = list[i];
      return kept;
    }
    get size() { return this.#list.length; }
    append(name, value) {
      need(arguments.length, 2);
      const list = this.#list;
      list[list.length] = [usv(name), usv(value)];
      this.#update(list);
    }
    delete(name, value = undefined) {
      const match = matcher(arguments.length, name, value);
      this.#update(this.#where((pair) => !match(pair)));
    }
    get(name) {
      const found = this.#where(matcher(arguments.length, name));
      return found.length > 0 ? found[0][1] : null;
    }
    getAll(name) {
      const found = this.#where(matcher(arguments.length, name));
      for (let i = 0; i < found.length; i++) found[i] = found[i][1];
      return found;
    }
    has(name, value = undefined) { return this.#where(matcher(arguments.length, name, value)).length > 0; }
    set(name, value) {
      need(arguments.length, 2);
      const made = [usv(name), usv(value)];
      let placed = false;
      const list = this.#where((pair) => {
        if (pair[0] !== made[0]) return true;
        if (placed) return false;
        pair[1] = made[1];
        return (placed = true);
      });
      if (!placed) list[list.length] = made;
      this.#update(list);
    }
    sort() { this.#update(sort(this.#list, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0))); }
    forEach(callback, thisArg = undefined) {
      if (typeof callback !== 'function') throw new Failure('forEach needs a function');
      for (let i = 0; i < this.#list.length; i++) apply(callback, thisArg, [this.#list[i][1], this.#list[i][0], this]);
    }
    keys() { return this.#walk((pair) => pair[0]); }
    values() { return this.#walk((pair) => pair[1]); }
    entries() { return this.#walk((pair) => [pair[0], pair[1]]); }
    #walk(pick) { return walk(() => this.#list, pick); }
    toString() { return serialiseForm(this.#list); }
    get [Symbol.toStringTag]() { return 'URLSearchParams'; }
  }
  defineProperty(URLSearchParams.prototype, iterator, {
    value: URLSearchParams.prototype.entries, writable: true, enumerable: false, configurable: true,
  });

  class URL {
    #u;
    #params = null;
    constructor(url, base = undefined) {
      const u = resolve(arguments.length, url, base);
      if (u === null) {
        const shown = (text) => stringify(slice(usv(text), 0, 200));
        const error = new Failure(`Invalid URL: ${shown(url)}${base === undefined ? '' : ` with base ${shown(base)}`}`);
        captureStackTrace(error, URL); // so that its stack begins in the program
        throw error;
      }
      this.#u = u;
    }
    static canParse(url, base = undefined) { return resolve(arguments.length, url, base) !== null; }
    static parse(url, base = undefined) {
      const u = resolve(arguments.length, url, base);
      if (u === null) return null;
      const made = new URL('a:');
      made.#u = u;
      return made;
    }

    get href() { return hrefOf(this.#u); }
    set href(value) {
      const u = parse(usv(value), null);
      if (u === null) throw new Failure(`Invalid URL: ${stringify(slice(usv(value), 0, 200))}`);
      this.#u = u;
      link(this.searchParams, parseForm(u.query ?? ''), null);
    }
    get origin() { return originOf(this.#u); }
    get protocol() { return this.#u.protocol; }
    set protocol(value) {
      const u = this.#u, scheme = exec(/^[a-z][a-z\d+.-]*:/i, `${untab(usv(value))}:`);
      if (scheme === null) return;
      const protocol = lower(scheme[0]);
      if (isSpecial(u) !== protocol in PORTS) return;
      if (protocol === 'file:' && (u.username !== '' || u.password !== '' || u.port !== null)) return;
      if (u.protocol === 'file:' && u.host === '') return;
      u.protocol = protocol;
      if (u.port === PORTS[protocol]) u.port = null;
    }
    get username() { return this.#u.username; }
    set username(value) { setCredential(this.#u, 'username', usv(value)); }
    get password() { return this.#u.password; }
    set password(value) { setCredential(this.#u, 'password', usv(value)); }
    get host() { return hostOf(this.#u); }
    set host(value) { changeHost(this.#u, usv(value), true); }
    get hostname() { return this.#u.host ?? ''; }
    set hostname(value) { changeHost(this.#u, usv(value), false); }
    get port() { return this.#u.port === null ? '' : `${this.#u.port}`; }
    set port(value) {
      value = usv(value);
      if (hasNoHost(this.#u)) return;
      if (value === '') this.#u.port = null;
      else setPort(this.#u, exec(/^\d*/, untab(value))[0]);
    }
    get pathname() { return pathOf(this.#u); }
    set pathname(value) {
      const u = this.#u, text = untab(usv(value));
      if (isOpaque(u)) return;
      u.path = [];
      if (text !== '' || isSpecial(u)) pathAfter(u, text);
      else if (u.host === null) u.path[0] = '';
    }
    get search() { return this.#u.query === null || this.#u.query === '' ? '' : `?${this.#u.query}`; }
    set search(value) {
      const text = usv(value), query = text[0] === '?' ? slice(text, 1) : text;
      if (text === '') this.#u.query = null;
      else setQuery(this.#u, untab(query));
      link(this.searchParams, parseForm(query), null);
    }
    get searchParams() {
      return this.#params ??= link(null, parseForm(this.#u.query ?? ''), (query) => { this.#u.query = query || null; });
    }
    get hash() { return this.#u.fragment === null || this.#u.fragment === '' ? '' : `#${this.#u.fragment}`; }
    set hash(value) {
      const text = usv(value);
      this.#u.fragment = text === '' ? null : encode(untab(text[0] === '#' ? slice(text, 1) : text), FRAGMENT);
    }
    toString() { return hrefOf(this.#u); }
    toJSON() { return hrefOf(this.#u); }
    get [Symbol.toStringTag]() { return 'URL'; }
  }
  define('URL', URL);
  define('URLSearchParams', URLSearchParams);
}
