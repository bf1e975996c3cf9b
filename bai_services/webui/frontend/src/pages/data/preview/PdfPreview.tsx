import { useEffect, useRef, useState } from 'react';
import { Alert, Skeleton } from 'antd';
import {
  getDocument,
  GlobalWorkerOptions,
  type PDFDocumentProxy,
  type PDFPageProxy
} from 'pdfjs-dist';
import workerUrl from 'pdfjs-dist/build/pdf.worker.min.mjs?url';
import { useTranslation } from 'react-i18next';

GlobalWorkerOptions.workerSrc = workerUrl;

/** The pages of a PDF; a page is rendered when it scrolls into view. */
export function PdfPreview({ bytes }: { bytes: Uint8Array<ArrayBuffer> }) {
  const { t } = useTranslation();
  const [document, setDocument] = useState<PDFDocumentProxy>();
  const [isBroken, setIsBroken] = useState(false);
  useEffect(() => {
    // Pass a copy: the worker takes ownership of the array, but the file can be shown again later.
    const loading = getDocument({ data: bytes.slice(), useWasm: false });
    loading.promise.then(setDocument, () => setIsBroken(true));
    return () => void loading.destroy();
  }, [bytes]);
  if (isBroken) {
    return <Alert type="warning" showIcon title={t('preview.bad-pdf')} />;
  }
  if (!document) {
    return <Skeleton active />;
  }
  return Array.from({ length: document.numPages }, (_, index) => (
    <Page key={index} document={document} number={index + 1} />
  ));
}

const A4_RATIO = 1.41;

function Page({ document, number }: { document: PDFDocumentProxy; number: number }) {
  const { t } = useTranslation();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [text, setText] = useState('');
  const [isDrawn, setIsDrawn] = useState(false);
  const [isBroken, setIsBroken] = useState(false);
  useEffect(() => {
    const element = canvas.current;
    if (!element) {
      return;
    }
    const observer = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) {
        observer.disconnect();
        void document
          .getPage(number)
          .then(async page => {
            await draw(page, element);
            setText(await textOf(page));
            setIsDrawn(true);
          })
          .catch(() => {
            // Ignore the failure if the document was closed in the meantime.
            if (!document.loadingTask.destroyed) {
              setIsBroken(true);
            }
          });
      }
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [document, number]);
  const label = t('preview.page', { number, count: document.numPages });
  return (
    <figure className="bai-pdf-page" aria-label={label}>
      {isBroken ? (
        <Alert type="warning" showIcon title={t('preview.bad-pdf')} />
      ) : (
        <canvas
          ref={canvas}
          aria-hidden
          style={isDrawn ? {} : { width: '100%', aspectRatio: `1 / ${A4_RATIO}` }}
        />
      )}
      <figcaption className="bai-hidden-text">{text}</figcaption>
    </figure>
  );
}

async function draw(page: PDFPageProxy, canvas: HTMLCanvasElement): Promise<void> {
  const width = canvas.parentElement?.clientWidth ?? canvas.width;
  const scale = (width / page.getViewport({ scale: 1 }).width) * window.devicePixelRatio;
  const viewport = page.getViewport({ scale });
  canvas.width = viewport.width;
  canvas.height = viewport.height;
  canvas.style.width = '100%';
  await page.render({ canvas, viewport }).promise;
}

async function textOf(page: PDFPageProxy): Promise<string> {
  const { items } = await page.getTextContent();
  return items.map(item => ('str' in item ? item.str : '')).join(' ');
}
