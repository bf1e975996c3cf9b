import { MAX_TEXT, type Attachment } from './cards';

/** Larger images are scaled down to this number of pixels per side. */
const MAX_PIXELS = 1280;
const MAX_IMAGE_BYTES = 20 * 2 ** 20;
const QUALITY = 0.85;
/** Images that browsers decode without running scripts or loading other files. */
const IMAGES: readonly string[] = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];

/** Why a file cannot be attached; a key of the texts of the page. */
export class AttachmentError extends Error {}

export const ACCEPTED = [...IMAGES, 'text/*', '.md', '.json', '.yaml', '.yml', '.csv', '.py'].join(
  ','
);

/**
 * Read a file as an attachment: an image, or a text.
 *
 * @throws AttachmentError if the file is too large, or neither an image nor a text
 */
export async function attachmentOf(file: File): Promise<Attachment> {
  const { name } = file;
  if (IMAGES.includes(file.type)) {
    return { name, kind: 'image', text: '', dataUrl: await imageOf(file) };
  }
  // Reject files that certainly have too many characters: a character has at most four bytes.
  if (file.size > 4 * MAX_TEXT) {
    throw new AttachmentError('file-too-large');
  }
  return { name, kind: 'text', text: textOf(await file.arrayBuffer()) };
}

/** @throws AttachmentError if the bytes are not a text in UTF-8, or too long */
export function textOf(bytes: ArrayBuffer): string {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new AttachmentError('file-no-text');
  }
  if (text.includes('\0')) {
    throw new AttachmentError('file-no-text');
  }
  if (text.length > MAX_TEXT) {
    throw new AttachmentError('file-too-large');
  }
  return text;
}

/** The image as a data URL, at most `MAX_PIXELS` wide and high. */
async function imageOf(file: File): Promise<string> {
  if (file.size > MAX_IMAGE_BYTES) {
    throw new AttachmentError('file-too-large');
  }
  const image = await createImageBitmap(file).catch(() => {
    throw new AttachmentError('file-no-image');
  });
  const scale = Math.min(1, MAX_PIXELS / Math.max(image.width, image.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const context = canvas.getContext('2d');
  // Fill the background with white, because JPEG has no transparency.
  if (context) {
    context.fillStyle = 'white';
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
  }
  image.close();
  return canvas.toDataURL('image/jpeg', QUALITY);
}
