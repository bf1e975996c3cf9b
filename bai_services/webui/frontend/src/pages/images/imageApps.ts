export const LABEL = 'ai.backend.service-ports';
export const PROTOCOLS = ['http', 'tcp', 'preopen', 'vnc', 'rdp', 'pty'];

/** An app of an image; `ports` are port numbers separated by commas. */
export interface ImageApp {
  name: string;
  protocol: string;
  ports: string;
}

/** Parse the service-ports label, such as `lab:http:8090,triton:http:[8000,8001]`. */
export function appsOf(label: string): ImageApp[] {
  // A comma inside of brackets separates the ports of one app.
  const entries = label.split(/,(?![^[]*\])/).filter(entry => entry.trim() !== '');
  return entries.map(entry => {
    const [name = '', protocol = '', ports = ''] = entry.trim().split(':');
    return { name, protocol, ports: ports.replace(/[[\]]/g, '') };
  });
}

export const labelOf = (apps: readonly ImageApp[]) =>
  apps
    .map(({ name, protocol, ports }) => {
      const numbers = ports.replace(/\s/g, '');
      return `${name}:${protocol}:${numbers.includes(',') ? `[${numbers}]` : numbers}`;
    })
    .join(',');

/** Registry and tag of an image's full name; empty if the name has none. */
export function partsOf(image: string): { registry: string; tag: string } {
  const [first = '', ...rest] = image.split('/');
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost');
  const [, tag = ''] = (rest.at(-1) ?? first).split(':');
  return { registry: isHost ? first : '', tag };
}
