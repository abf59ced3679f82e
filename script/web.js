// The web's globals for scripts, on a native host: addresses, text and bytes, abort,
// headers, bodies, fetch. As the prelude it is one function whose argument no script
// can reach, and it keeps its own references to what scripts may replace.
(function (host) {
  "use strict";
  const { defineProperty, freeze, create } = Object;
  const { apply } = Reflect;
  const NativeTypeError = TypeError, NativeRangeError = RangeError, NativeError = Error;
  const NativePromise = Promise, Bytes = Uint8Array, Buffer = ArrayBuffer;
  const parse = JSON.parse, stringify = JSON.stringify, text = String, isView = ArrayBuffer.isView;
  const asyncIterator = Symbol.asyncIterator || Symbol.for("Symbol.asyncIterator");
  const globals = create(null);
  const put = (name, value) => {
    globals[name] = value;
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  };

  // --- DOMException, AbortSignal, AbortController -----------------------------------
  const codes = { AbortError: 20, TimeoutError: 23, NotSupportedError: 9, InvalidCharacterError: 5, DataCloneError: 25 };
  class DOMException extends NativeError {
    constructor(message = "", name = "Error") {
      super(message);
      defineProperty(this, "name", { value: name, configurable: true });
      defineProperty(this, "code", { value: codes[name] || 0, configurable: true });
    }
  }
  put("DOMException", DOMException);
  const aborted = () => new DOMException("The operation was aborted.", "AbortError");

  const inside = freeze({ made: "inside" });
  class Event { constructor(type, target) { this.type = type; this.target = target; this.currentTarget = target; } }
  class AbortSignal {
    #reason; #aborted = false; #listeners = []; #followers = [];
    constructor(key) {
      if (key !== inside) throw new NativeTypeError("Illegal constructor");
      this.onabort = null;
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    addEventListener(type, fn, options) {
      if (type !== "abort" || !fn || this.#listeners.some((l) => l.fn === fn)) return;
      this.#listeners.push({ fn, once: !!(options && options.once) });
    }
    removeEventListener(type, fn) { if (type === "abort") this.#listeners = this.#listeners.filter((l) => l.fn !== fn); }
    dispatchEvent() { return true; }
    static follow(signal, key, fn) { if (key === inside) signal.#followers.push(fn); }
    static fire(signal, key, reason) {
      if (key !== inside || signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason === undefined ? aborted() : reason;
      const own = signal.#followers, heard = signal.#listeners;
      signal.#followers = [];
      for (const fn of own) fn();
      const event = new Event("abort", signal);
      const call = (fn) => {
        try { if (typeof fn === "function") apply(fn, signal, [event]); else if (fn && typeof fn.handleEvent === "function") fn.handleEvent(event); } catch (e) { console.error(e); }
      };
      call(signal.onabort);
      for (const l of heard) call(l.fn);
      signal.#listeners = heard.filter((l) => !l.once);
    }
    static abort(reason) { const s = new AbortSignal(inside); fire(s, inside, reason); return s; }
    static timeout(ms) {
      const s = new AbortSignal(inside);
      const id = host.timer(() => fire(s, inside, new DOMException("The operation timed out.", "TimeoutError")), +ms >= 1 ? +ms : 0, false);
      if (id < 0) throw new NativeRangeError("too many timers are open");
      return s;
    }
    static any(list) {
      const s = new AbortSignal(inside), from = [...list];
      for (const other of from) {
        if (other.aborted) { fire(s, inside, other.reason); return s; }
      }
      for (const other of from) follow(other, inside, () => fire(s, inside, other.reason));
      return s;
    }
  }
  const { follow, fire } = AbortSignal;
  delete AbortSignal.follow;
  delete AbortSignal.fire;
  class AbortController {
    #signal = new AbortSignal(inside);
    get signal() { return this.#signal; }
    abort(reason) { fire(this.#signal, inside, reason); }
  }
  class CancelToken {
    #controller = new AbortController();
    get token() { return this; }
    get signal() { return this.#controller.signal; }
    get isCancelled() { return this.#controller.signal.aborted; }
    cancel(reason) { this.#controller.abort(reason); }
  }
  put("Event", Event); put("AbortSignal", AbortSignal); put("AbortController", AbortController); put("CancelToken", CancelToken);

  // --- text and bytes ------------------------------------------------------------
  const bytesOf = (v) => {
    if (v instanceof Buffer) return new Bytes(v);
    if (isView(v)) return new Bytes(v.buffer, v.byteOffset, v.byteLength);
    throw new NativeTypeError("bytes are an ArrayBuffer or a view of one");
  };
  const encode = (s) => new Bytes(host.encode(text(s)));
  const decode = (b) => host.decode(bytesOf(b).slice().buffer, false);
  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(s = "") { return encode(s); }
    encodeInto(s, into) {
      const all = encode(s), n = Math.min(all.length, into.length);
      into.set(all.subarray(0, n));
      return { read: text(s).length, written: n };
    }
  }
  class TextDecoder {
    #fatal; #keepBOM; #left = new Bytes(0);
    constructor(label = "utf-8", options = {}) {
      const name = text(label).trim().toLowerCase();
      if (!["utf-8", "utf8", "unicode-1-1-utf-8"].includes(name)) throw new NativeRangeError("the encoding " + name + " is not supported: utf-8 is");
      this.#fatal = !!options.fatal; this.#keepBOM = !!options.ignoreBOM;
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepBOM; }
    decode(input, options) {
      let b = input === undefined ? new Bytes(0) : bytesOf(input);
      if (this.#left.length) { const all = new Bytes(this.#left.length + b.length); all.set(this.#left); all.set(b, this.#left.length); b = all; }
      this.#left = new Bytes(0);
      if (options && options.stream) {
        const whole = host.whole(b.slice().buffer);
        this.#left = b.slice(whole);
        b = b.subarray(0, whole);
      }
      const s = host.decode(b.slice().buffer, this.#fatal);
      if (s === undefined) throw new NativeTypeError("the bytes are not valid utf-8");
      return !this.#keepBOM && s.charCodeAt(0) === 0xfeff ? s.slice(1) : s;
    }
  }
  put("TextEncoder", TextEncoder); put("TextDecoder", TextDecoder);
  put("btoa", (s) => {
    s = text(s);
    const b = new Bytes(s.length);
    for (let i = 0; i < s.length; i++) {
      const c = s.charCodeAt(i);
      if (c > 255) throw new DOMException("btoa takes Latin-1 only", "InvalidCharacterError");
      b[i] = c;
    }
    return host.base64(b.buffer);
  });
  put("atob", (s) => {
    const b = host.unbase64(text(s));
    if (b === undefined) throw new DOMException("atob takes base64 only", "InvalidCharacterError");
    let out = "";
    for (const c of new Bytes(b)) out += String.fromCharCode(c);
    return out;
  });

  class Data {
    #b;
    constructor(b, key) { if (key !== inside) throw new NativeTypeError("Illegal constructor"); this.#b = b; }
    static fromRawString(s) { return new Data(encode(s), inside); }
    static fromString(s) { return new Data(encode(s), inside); }
    static fromBase64String(s) { const b = host.unbase64(text(s)); return b === undefined ? null : new Data(new Bytes(b), inside); }
    static fromHexString(s) { const b = host.unhex(text(s)); return b === undefined ? null : new Data(new Bytes(b), inside); }
    static fromUint8Array(b) { return new Data(bytesOf(b).slice(), inside); }
    static fromArrayBuffer(b) { return new Data(bytesOf(b).slice(), inside); }
    get size() { return this.#b.length; }
    toRawString() { return host.decode(this.#b.slice().buffer, true) ?? null; }
    toDecodedString() { return this.toRawString(); }
    toBase64String() { return host.base64(this.#b.slice().buffer); }
    toHexString() { return host.hex(this.#b.slice().buffer); }
    toUint8Array() { return this.#b.slice(); }
    toArrayBuffer() { return this.#b.slice().buffer; }
    slice(from = 0, to) { return new Data(this.#b.slice(from, to), inside); }
    append(other) {
      const more = other instanceof Data ? other.#b : bytesOf(other), all = new Bytes(this.#b.length + more.length);
      all.set(this.#b); all.set(more, this.#b.length);
      this.#b = all;
    }
  }
  put("Data", Data);

  // --- addresses -------------------------------------------------------------------
  class URLSearchParams {
    #list = []; #changed = null;
    constructor(init = "") {
      if (typeof init === "string") this.#read(init);
      else if (init !== null && typeof init === "object") {
        if (init instanceof URLSearchParams) this.#list = init.#list.map(([k, v]) => [k, v]);
        else if (typeof init[Symbol.iterator] === "function") for (const [k, v] of init) this.#list.push([text(k), text(v)]);
        else for (const k of Object.keys(init)) this.#list.push([k, text(init[k])]);
      } else this.#read(text(init));
    }
    #read(s) { this.#list = parse(host.query(s.startsWith("?") ? s.slice(1) : s)); }
    #write() { if (this.#changed) this.#changed(this.toString()); }
    static bind(p, key, changed) { if (key === inside) p.#changed = changed; }
    static reset(p, key, s) { if (key === inside) p.#read(s); }
    get size() { return this.#list.length; }
    append(k, v) { this.#list.push([text(k), text(v)]); this.#write(); }
    delete(k, v) { this.#list = this.#list.filter((e) => e[0] !== text(k) || (v !== undefined && e[1] !== text(v))); this.#write(); }
    get(k) { const e = this.#list.find((e) => e[0] === text(k)); return e ? e[1] : null; }
    getAll(k) { return this.#list.filter((e) => e[0] === text(k)).map((e) => e[1]); }
    has(k, v) { return this.#list.some((e) => e[0] === text(k) && (v === undefined || e[1] === text(v))); }
    set(k, v) {
      k = text(k); v = text(v);
      const i = this.#list.findIndex((e) => e[0] === k);
      if (i < 0) this.#list.push([k, v]);
      else { this.#list[i][1] = v; this.#list = this.#list.filter((e, j) => j <= i || e[0] !== k); }
      this.#write();
    }
    sort() { this.#list.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0); this.#write(); }
    forEach(fn, self) { for (const [k, v] of this.#list) apply(fn, self, [v, k, this]); }
    *entries() { for (const [k, v] of this.#list) yield [k, v]; }
    *keys() { for (const [k] of this.#list) yield k; }
    *values() { for (const [, v] of this.#list) yield v; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return host.unquery(stringify(this.#list)); }
  }
  const { bind, reset } = URLSearchParams;
  delete URLSearchParams.bind;
  delete URLSearchParams.reset;

  const parts = ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  class URL {
    #p; #params;
    constructor(address, base) {
      const p = host.url(text(address), base === undefined ? "" : text(base));
      if (p === undefined) throw new NativeTypeError("Invalid URL: " + text(address));
      this.#p = parse(p);
      this.#params = new URLSearchParams(this.#p.search);
      bind(this.#params, inside, (s) => { this.#p = parse(host.setURL(this.#p.href, "search", s)); });
    }
    static canParse(address, base) { return host.url(text(address), base === undefined ? "" : text(base)) !== undefined; }
    static parse(address, base) { try { return new URL(address, base); } catch (_) { return null; } }
    get origin() { return this.#p.origin; }
    get searchParams() { return this.#params; }
    toString() { return this.#p.href; }
    toJSON() { return this.#p.href; }
    static read(u, key, name) { return key === inside ? u.#p[name] : undefined; }
    static write(u, key, name, value) {
      if (key !== inside) return;
      const p = host.setURL(u.#p.href, name, value);
      if (p === undefined) { if (name === "href") throw new NativeTypeError("Invalid URL: " + value); return; }
      u.#p = parse(p);
      reset(u.#params, inside, u.#p.search.slice(1));
    }
  }
  const { read, write } = URL;
  delete URL.read;
  delete URL.write;
  for (const name of parts)
    defineProperty(URL.prototype, name, { get() { return read(this, inside, name); }, set(v) { write(this, inside, name, text(v)); }, enumerable: true, configurable: true });
  put("URLSearchParams", URLSearchParams); put("URL", URL);

  // --- Headers ---------------------------------------------------------------------
  const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  class Headers {
    #list = []; // [name in lower case, value]
    constructor(init) {
      if (init === undefined || init === null) return;
      if (init instanceof Headers) this.#list = init.#list.map(([k, v]) => [k, v]);
      else if (typeof init[Symbol.iterator] === "function") for (const [k, v] of init) this.append(k, v);
      else for (const k of Object.keys(init)) this.append(k, init[k]);
    }
    #name(k) { k = text(k); if (!fieldName.test(k)) throw new NativeTypeError("Invalid header name: " + k); return k.toLowerCase(); }
    #value(v) { v = text(v).trim(); if (/[\0\r\n]/.test(v)) throw new NativeTypeError("Invalid header value"); return v; }
    append(k, v) { this.#list.push([this.#name(k), this.#value(v)]); }
    delete(k) { k = this.#name(k); this.#list = this.#list.filter((e) => e[0] !== k); }
    get(k) { k = this.#name(k); const all = this.#list.filter((e) => e[0] === k).map((e) => e[1]); return all.length ? all.join(", ") : null; }
    getSetCookie() { return this.#list.filter((e) => e[0] === "set-cookie").map((e) => e[1]); }
    has(k) { k = this.#name(k); return this.#list.some((e) => e[0] === k); }
    set(k, v) { k = this.#name(k); v = this.#value(v); this.delete(k); this.#list.push([k, v]); }
    forEach(fn, self) { for (const [k, v] of this) apply(fn, self, [v, k, this]); }
    *entries() {
      const names = [...new Set(this.#list.map((e) => e[0]))].sort();
      for (const k of names) if (k === "set-cookie") { for (const v of this.getSetCookie()) yield [k, v]; } else yield [k, this.get(k)];
    }
    *keys() { for (const [k] of this.entries()) yield k; }
    *values() { for (const [, v] of this.entries()) yield v; }
    [Symbol.iterator]() { return this.entries(); }
    toJson() { const o = {}; for (const [k, v] of this.entries()) o[k] = v; return o; }
    toJSON() { return this.toJson(); }
  }
  put("Headers", Headers);

  // --- Blob, File, FormData, ReadableStream ------------------------------------------
  const join = (list) => {
    const all = new Bytes(list.reduce((n, b) => n + b.length, 0));
    let at = 0;
    for (const b of list) { all.set(b, at); at += b.length; }
    return all;
  };
  class Blob {
    #b; #type;
    constructor(pieces = [], options = {}) {
      this.#b = join([...pieces].map((p) => p instanceof Blob ? p.#b : p instanceof Data ? p.toUint8Array() : typeof p === "object" && p !== null ? bytesOf(p) : encode(p)));
      this.#type = text(options.type === undefined ? "" : options.type).toLowerCase();
    }
    get size() { return this.#b.length; }
    get type() { return this.#type; }
    async arrayBuffer() { return this.#b.slice().buffer; }
    async bytes() { return this.#b.slice(); }
    async text() { return decode(this.#b); }
    async data() { return Data.fromUint8Array(this.#b); }
    slice(from, to, type = "") { return new Blob([this.#b.slice(from, to)], { type }); }
    stream() { return streamOf(this.#b); }
  }
  class File extends Blob {
    constructor(pieces, name, options = {}) {
      super(pieces, options);
      defineProperty(this, "name", { value: text(name), enumerable: true });
      defineProperty(this, "lastModified", { value: options.lastModified === undefined ? Date.now() : +options.lastModified, enumerable: true });
    }
  }
  class FormData {
    #list = [];
    #entry(v, name) {
      if (v instanceof Data) v = new Blob([v]);
      if (!(v instanceof Blob)) return text(v);
      return v instanceof File && name === undefined ? v : new File([v], name === undefined ? "blob" : name, { type: v.type });
    }
    append(k, v, name) { this.#list.push([text(k), this.#entry(v, name)]); }
    set(k, v, name) { this.delete(k); this.append(k, v, name); }
    delete(k) { this.#list = this.#list.filter((e) => e[0] !== text(k)); }
    get(k) { const e = this.#list.find((e) => e[0] === text(k)); return e ? e[1] : null; }
    getAll(k) { return this.#list.filter((e) => e[0] === text(k)).map((e) => e[1]); }
    has(k) { return this.#list.some((e) => e[0] === text(k)); }
    forEach(fn, self) { for (const [k, v] of this.#list) apply(fn, self, [v, k, this]); }
    *entries() { for (const [k, v] of this.#list) yield [k, v]; }
    *keys() { for (const [k] of this.#list) yield k; }
    *values() { for (const [, v] of this.#list) yield v; }
    [Symbol.iterator]() { return this.entries(); }
  }
  put("Blob", Blob); put("File", File); put("FormData", FormData);
  const multipart = async (form) => {
    const boundary = "----belay" + host.random();
    const quote = (s) => s.replace(/\r?\n|\r/g, "%0D%0A").replace(/"/g, "%22");
    const out = [];
    for (const [k, v] of form) {
      let head = "--" + boundary + '\r\nContent-Disposition: form-data; name="' + quote(k) + '"';
      if (v instanceof Blob) head += '; filename="' + quote(v.name) + '"\r\nContent-Type: ' + (v.type || "application/octet-stream");
      out.push(encode(head + "\r\n\r\n"), v instanceof Blob ? await v.bytes() : encode(v), encode("\r\n"));
    }
    out.push(encode("--" + boundary + "--\r\n"));
    return [join(out), "multipart/form-data; boundary=" + boundary];
  };

  // A stream pulls its pieces from a source: () => promise of bytes, or null at the end.
  class ReadableStream {
    #pull; #cancel; #locked = false; #done = false;
    constructor(source = {}, key) {
      if (key === inside) { this.#pull = source.pull; this.#cancel = source.cancel; return; }
      const queue = [], waiting = [];
      let closed = false, failed;
      const next = () => {
        while (waiting.length && (queue.length || closed || failed)) {
          const [yes, no] = waiting.shift();
          if (queue.length) yes(queue.shift()); else if (failed) no(failed.e); else yes(null);
        }
      };
      const controller = { enqueue(b) { queue.push(b); next(); }, close() { closed = true; next(); }, error(e) { failed = { e }; next(); }, desiredSize: 1 };
      if (source.start) source.start(controller);
      this.#pull = () => new NativePromise((yes, no) => {
        waiting.push([yes, no]);
        if (!queue.length && !closed && source.pull) NativePromise.resolve(source.pull(controller)).then(undefined, (e) => controller.error(e));
        next();
      });
      this.#cancel = (why) => source.cancel && source.cancel(why);
    }
    get locked() { return this.#locked; }
    async #read() {
      if (this.#done) return { value: undefined, done: true };
      const value = await this.#pull();
      if (value === null) { this.#done = true; return { value: undefined, done: true }; }
      return { value, done: false };
    }
    getReader() {
      if (this.#locked) throw new NativeTypeError("the stream is locked");
      this.#locked = true;
      return { read: () => this.#read(), releaseLock: () => { this.#locked = false; }, cancel: (why) => this.#stop(why), closed: NativePromise.resolve() };
    }
    async #stop(why) { this.#done = true; if (this.#cancel) await this.#cancel(why); }
    cancel(why) { return this.#stop(why); }
    [asyncIterator]() {
      const reader = this.getReader();
      return { next: () => reader.read(), return: async () => { await reader.cancel(); return { value: undefined, done: true }; }, [asyncIterator]() { return this; } };
    }
    static used(s, key) { return key === inside && (s.#locked || s.#done); }
  }
  const { used } = ReadableStream;
  delete ReadableStream.used;
  put("ReadableStream", ReadableStream);
  const streamOf = (b) => {
    let given = false;
    return new ReadableStream({ pull: async () => { if (given || !b.length) return null; given = true; return b.slice(); } }, inside);
  };

  // --- Request, Response, fetch --------------------------------------------------------
  // What a body is sent as: [bytes or null, content type or null].
  const packed = async (body) => {
    if (body === undefined || body === null) return [null, null];
    if (body instanceof FormData) return multipart(body);
    if (body instanceof URLSearchParams) return [encode(body.toString()), "application/x-www-form-urlencoded;charset=UTF-8"];
    if (body instanceof Blob) return [await body.bytes(), body.type || null];
    if (body instanceof Data) return [body.toUint8Array(), null];
    if (body instanceof ReadableStream) return [await drain(body), null];
    if (body instanceof Buffer || isView(body)) return [bytesOf(body).slice(), null];
    return [encode(body), "text/plain;charset=UTF-8"];
  };
  const drain = async (stream) => {
    const reader = stream.getReader(), all = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return join(all);
      all.push(typeof value === "string" ? encode(value) : bytesOf(value));
    }
  };
  // The stream of a body that is packed when somebody reads it.
  const lazily = (content) => {
    let given = false;
    return new ReadableStream({ pull: async () => {
      if (given) return null;
      given = true;
      const [b] = await packed(content);
      return b && b.length ? b : null;
    } }, inside);
  };
  class Body {
    #stream = null; #used = false;
    static fill(b, key, stream) { if (key === inside) b.#stream = stream; }
    static split(b, key) {
      if (key !== inside || !b.#stream) return null;
      if (b.bodyUsed) throw new NativeTypeError("the body has been read already");
      const from = b.#stream.getReader();
      const queues = [[], []];
      let over = false;
      const pull = (mine) => async () => {
        while (!queues[mine].length) {
          if (over) return null;
          const { value, done } = await from.read();
          if (done) { over = true; return null; }
          queues[0].push(value); queues[1].push(value);
        }
        return queues[mine].shift();
      };
      b.#stream = new ReadableStream({ pull: pull(0), cancel: () => {} }, inside);
      return new ReadableStream({ pull: pull(1), cancel: () => {} }, inside);
    }
    get body() { return this.#stream; }
    get bodyUsed() { return this.#used || (this.#stream !== null && used(this.#stream, inside)); }
    async bytes() {
      if (this.bodyUsed) throw new NativeTypeError("the body has been read already");
      this.#used = true;
      return this.#stream ? drain(this.#stream) : new Bytes(0);
    }
    async arrayBuffer() { return (await this.bytes()).buffer; }
    async text() { const s = decode(await this.bytes()); return s.charCodeAt(0) === 0xfeff ? s.slice(1) : s; }
    async json() { return parse(await this.text()); }
    async data() { return Data.fromUint8Array(await this.bytes()); }
    async blob() { return new Blob([await this.bytes()], { type: this.headers.get("content-type") || "" }); }
    async formData() {
      const type = this.headers.get("content-type") || "", form = new FormData();
      if (!type.startsWith("application/x-www-form-urlencoded")) throw new NativeTypeError("formData reads application/x-www-form-urlencoded, not " + type);
      for (const [k, v] of new URLSearchParams(await this.text())) form.append(k, v);
      return form;
    }
  }
  const { fill, split } = Body;
  delete Body.fill;
  delete Body.split;

  class Request extends Body {
    constructor(input, init = {}) {
      super();
      const from = input instanceof Request ? input : null;
      const fixed = (name, value) => defineProperty(this, name, { value, enumerable: true });
      fixed("url", from ? from.url : new URL(input instanceof URL ? input.href : input).href);
      const method = text(init.method || (from ? from.method : "GET")).toUpperCase();
      if (method === "CONNECT" || method === "TRACE" || method === "TRACK") throw new NativeTypeError(method + " cannot be fetched");
      fixed("method", method);
      fixed("headers", new Headers(init.headers || (from ? from.headers : undefined)));
      const token = init.cancelToken && init.cancelToken.signal;
      fixed("signal", init.signal || token || (from ? from.signal : null));
      fixed("timeout", init.timeout === undefined ? (from ? from.timeout : undefined) : +init.timeout);
      fixed("redirect", init.redirect || (from ? from.redirect : "follow"));
      fixed("handleRedirect", init.handleRedirect || (from ? from.handleRedirect : undefined));
      fixed("mode", "cors"); fixed("credentials", "omit"); fixed("cache", "no-store");
      let content = init.body;
      if (content === undefined && from) content = from.content.get();
      if (content !== undefined && content !== null && (this.method === "GET" || this.method === "HEAD"))
        throw new NativeTypeError("a " + this.method + " request has no body");
      fixed("content", freeze({ get: () => content }));
      if (content !== undefined && content !== null) fill(this, inside, lazily(content));
    }
    clone() { return new Request(this); }
  }
  class Response extends Body {
    constructor(content = null, init = {}) {
      super();
      const fixed = (name, value) => defineProperty(this, name, { value, enumerable: true });
      const status = init.status === undefined ? 200 : +init.status;
      if (!(status >= 200 && status <= 599)) throw new NativeRangeError("the status " + init.status + " is not between 200 and 599");
      fixed("status", status);
      fixed("ok", status >= 200 && status < 300);
      fixed("statusText", text(init.statusText === undefined ? "" : init.statusText));
      fixed("headers", new Headers(init.headers));
      fixed("url", init.url && init.key === inside ? init.url : "");
      fixed("redirected", init.key === inside && !!init.redirected);
      fixed("type", "default");
      if (content instanceof ReadableStream) fill(this, inside, content);
      else if (content !== null && content !== undefined) {
        fill(this, inside, lazily(content));
        if (!this.headers.has("content-type")) {
          if (typeof content === "string") this.headers.set("content-type", "text/plain;charset=UTF-8");
          else if (content instanceof Blob && content.type) this.headers.set("content-type", content.type);
        }
      }
    }
    get mimeType() { const t = this.headers.get("content-type"); return t ? t.split(";")[0].trim() : undefined; }
    get cookies() {
      return this.headers.getSetCookie().map((c) => {
        const [pair] = c.split(";"), at = pair.indexOf("=");
        return { name: pair.slice(0, at).trim(), value: pair.slice(at + 1).trim() };
      });
    }
    clone() {
      return new Response(split(this, inside), { status: this.status, statusText: this.statusText, headers: this.headers, url: this.url, redirected: this.redirected, key: inside });
    }
    static json(v, init = {}) {
      const r = new Response(stringify(v), init);
      if (!init.headers || !new Headers(init.headers).has("content-type")) r.headers.set("content-type", "application/json");
      return r;
    }
    static error() { return new Response(null, { status: 500 }); }
  }
  put("Request", Request); put("Response", Response);

  const fetch = async (input, init = {}) => {
    const request = new Request(input, init);
    const { signal, timeout } = request;
    if (timeout !== undefined && !(timeout > 0)) throw new NativeTypeError("timeout is a number of seconds above 0");
    if (signal && signal.aborted) throw signal.reason;
    const [content, type] = await packed(request.content.get());
    if (type && !request.headers.has("content-type")) request.headers.set("content-type", type);
    if (signal && signal.aborted) throw signal.reason;
    return new NativePromise((resolve, reject) => {
      let id = 0, why = null;
      const fail = (kind, message) => {
        if (why) return why();
        return kind === "abort" ? aborted() : kind === "timeout" ? new DOMException(message, "TimeoutError") : new NativeTypeError(message);
      };
      id = host.fetch(request.method, request.url, stringify([...request.headers]), content ? content.slice().buffer : null,
        timeout === undefined ? 0 : timeout * 1000, request.redirect,
        (kind, message) => reject(fail(kind, message)),
        (answer) => {
          const a = parse(answer);
          const pull = () => new NativePromise((yes, no) => host.read(id, (b) => yes(b === null ? null : new Bytes(b)), (kind, message) => no(fail(kind, message))));
          const empty = request.method === "HEAD" || a.status === 204 || a.status === 304;
          resolve(new Response(empty ? null : new ReadableStream({ pull, cancel: () => { host.abort(id); } }, inside),
            { status: a.status, statusText: a.statusText, headers: a.headers, url: a.url, redirected: a.redirected, key: inside }));
        });
      if (signal) follow(signal, inside, () => { why = () => signal.reason; host.abort(id); });
    });
  };
  put("fetch", fetch);
  return globals;
})
