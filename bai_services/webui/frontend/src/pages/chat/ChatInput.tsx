import { useRef, useState, type ClipboardEvent, type KeyboardEvent } from 'react';
import { App, Button, Flex, Input } from 'antd';
import { PaperClipOutlined, SendOutlined } from '@ant-design/icons';
import { useTranslation } from 'react-i18next';
import { Tag } from '../../components/Tag';
import { UserText } from '../../components/UserText';
import { ACCEPTED, attachmentOf, AttachmentError } from './attachments';
import { MAX_ATTACHMENTS, MAX_TEXT, type Attachment } from './cards';

interface ChatInputProps {
  isRunning: boolean;
  /** Whether the input is disabled, because no model is selected. */
  isDisabled: boolean;
  onSend: (text: string, attachments: Attachment[]) => void;
  onStop: () => void;
}

/** The input of a message with attachments. Enter sends it; Shift+Enter begins a new line. */
export function ChatInput({ isRunning, isDisabled, onSend, onStop }: ChatInputProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [text, setText] = useState('');
  const [attachments, setAttachments] = useState<Attachment[]>([]);
  const picker = useRef<HTMLInputElement>(null);
  const isEmpty = text.trim() === '' && attachments.length === 0;

  const add = async (files: Iterable<File>) => {
    for (const file of files) {
      try {
        const attachment = await attachmentOf(file);
        setAttachments(old => [...old, attachment].slice(0, MAX_ATTACHMENTS));
      } catch (error) {
        const key = error instanceof AttachmentError ? error.message : 'file-unreadable';
        void message.error(t(`chat.${key}`, { name: file.name }));
      }
    }
  };
  const send = () => {
    if (!isEmpty && !isRunning && !isDisabled) {
      onSend(text, attachments);
      setText('');
      setAttachments([]);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // While a Korean or Japanese word is composed, Enter ends the word.
    if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length > 0) {
      event.preventDefault();
      void add([...event.clipboardData.files]);
    }
  };
  return (
    <div className="bai-chat-input">
      {attachments.length > 0 && (
        <Flex wrap gap={4}>
          {attachments.map((each, index) => (
            <Tag key={index}>
              <UserText text={each.name} />
              <Button
                type="text"
                size="small"
                aria-label={t('chat.remove-file', { name: each.name })}
                onClick={() => setAttachments(old => old.filter((_, place) => place !== index))}
              >
                ×
              </Button>
            </Tag>
          ))}
        </Flex>
      )}
      <Flex gap="small" align="end">
        <Input.TextArea
          aria-label={t('chat.message')}
          placeholder={t('chat.message-help')}
          autoSize={{ minRows: 1, maxRows: 8 }}
          maxLength={MAX_TEXT}
          value={text}
          disabled={isDisabled}
          onChange={event => setText(event.target.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
        <input
          ref={picker}
          type="file"
          hidden
          multiple
          accept={ACCEPTED}
          aria-label={t('chat.attach')}
          onChange={event => {
            void add([...(event.target.files ?? [])]);
            event.target.value = '';
          }}
        />
        <Button
          icon={<PaperClipOutlined />}
          aria-label={t('chat.attach')}
          title={t('chat.attach')}
          disabled={isDisabled || attachments.length >= MAX_ATTACHMENTS}
          onClick={() => picker.current?.click()}
        />
        {isRunning ? (
          <Button danger onClick={onStop}>
            {t('chat.stop')}
          </Button>
        ) : (
          <Button
            type="primary"
            icon={<SendOutlined />}
            disabled={isDisabled || isEmpty}
            onClick={send}
          >
            {t('chat.send')}
          </Button>
        )}
      </Flex>
    </div>
  );
}
