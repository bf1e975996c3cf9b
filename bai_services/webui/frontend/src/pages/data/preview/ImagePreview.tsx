import { useCallback, useState } from 'react';
import { Alert } from 'antd';
import { useTranslation } from 'react-i18next';
import { imageTypeOf } from './kinds';

/** An image in an `<img>` element, in which an SVG image cannot run scripts. */
export function ImagePreview({ name, bytes }: { name: string; bytes: Uint8Array<ArrayBuffer> }) {
  const { t } = useTranslation();
  const [isBroken, setIsBroken] = useState(false);
  const show = useCallback(
    (image: HTMLImageElement) => {
      const url = URL.createObjectURL(new Blob([bytes], { type: imageTypeOf(name) }));
      image.src = url;
      return () => URL.revokeObjectURL(url);
    },
    [name, bytes]
  );
  if (isBroken) {
    return <Alert type="warning" showIcon title={t('preview.bad-image')} />;
  }
  return (
    <img ref={show} alt={name} onError={() => setIsBroken(true)} className="bai-preview-image" />
  );
}
