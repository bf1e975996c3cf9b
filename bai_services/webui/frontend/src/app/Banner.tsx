import type { ReactNode } from 'react';
import { Alert, Button, Flex } from 'antd';
import { useTranslation } from 'react-i18next';
import { useStored } from '../data/stored';
import { unfoldedBanners, withChoice } from '../data/unfolded';

interface BannerProps {
  /** Identifies the message; the user's choice to fold it is stored under this id. */
  id: string;
  type: 'info' | 'warning' | 'error';
  title: ReactNode;
  /** Whether the details are shown until the user folds them. */
  isUnfolded: boolean;
  onDismiss?: (() => void) | undefined;
  dismissLabel?: string;
  /** Details, which can be folded. */
  children?: ReactNode;
}

/** A message above all pages. */
export function Banner(props: BannerProps) {
  const { id, title, children, onDismiss } = props;
  const { t } = useTranslation();
  const choices = useStored(unfoldedBanners);
  const choice = choices.find(([key]) => key === id)?.[1];
  const isOpen = choice ?? props.isUnfolded;
  return (
    <Alert
      showIcon
      type={props.type}
      className="bai-banner"
      title={
        <>
          <Flex wrap align="center" gap="small">
            <strong>{title}</strong>
            {children && (
              <Button
                type="link"
                size="small"
                style={{ paddingInline: 0 }}
                aria-expanded={isOpen}
                aria-controls={`banner-${id}`}
                onClick={() => unfoldedBanners.set(withChoice(choices, id, !isOpen))}
              >
                {t(isOpen ? 'shell.fold' : 'shell.unfold')}
              </Button>
            )}
          </Flex>
          <div id={`banner-${id}`}>{isOpen && children}</div>
        </>
      }
      {...(onDismiss && {
        closable: { 'aria-label': props.dismissLabel ?? '', onClose: onDismiss }
      })}
    />
  );
}
