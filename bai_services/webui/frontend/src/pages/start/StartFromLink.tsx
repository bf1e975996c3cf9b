import { lazy, useState } from 'react';
import { Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { LazyDialog } from '../../components/LazyDialog';
import { loadScript } from '../../data/scripts';

const LinkDialog = lazy(() =>
  loadScript(() => import('./LinkDialog')).then(module => ({ default: module.LinkDialog }))
);

/** Help text, and a button that opens a dialog in which the user pastes a link to the launcher. */
export function StartFromLink() {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <p>{t('start.link-help')}</p>
      <Button onClick={() => setIsOpen(true)}>{t('start.link')}</Button>
      <LazyDialog isOpen={isOpen}>
        <LinkDialog isOpen={isOpen} onClose={() => setIsOpen(false)} />
      </LazyDialog>
    </>
  );
}
