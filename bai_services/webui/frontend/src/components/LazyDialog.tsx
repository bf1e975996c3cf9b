import { Suspense, useState, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';

interface LazyDialogProps {
  isOpen: boolean;
  /** A component that `lazy` loads. */
  children: ReactNode;
}

/** Loads a dialog when it is first opened, and keeps it mounted for its animations. */
export function LazyDialog({ isOpen, children }: LazyDialogProps) {
  const { t } = useTranslation();
  const [wasOpened, setWasOpened] = useState(isOpen);
  if (isOpen && !wasOpened) {
    setWasOpened(true);
  }
  return (
    wasOpened && (
      <Suspense
        fallback={<div className="bai-loading" role="status" aria-label={t('shell.loading')} />}
      >
        {children}
      </Suspense>
    )
  );
}
